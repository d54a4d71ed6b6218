/* Activations of one value (src/activations.h and src/gemm.c of the forks; hank-ai src-lib/activations.hpp).
 *
 * The rule says in which type a step is computed; where C promotes, the casts are written out. What a fork computes as a constant
 * zero for lack of a case (relu6, and swish, mish, hard_mish and those over channels outside convolutions) is what its name says. */
#ifndef DARKNETBN_CURVES_H
#define DARKNETBN_CURVES_H

#include "elementary.h"
#include "kernels.h"

/* From where sums over the channels of a pixel start, in every fork */
static const float CHANNEL_SUM_START = 0.0001F;

INLINED float logistic(float x, precision p, const elementary *m) {
    if (p == PRECISION_FLOAT) return 1.F / (1.F + m->expf(-x));
    return (float)(1. / (1. + m->exp((double)-x)));
}

INLINED float loggy(float x, precision p, const elementary *m) {
    if (p == PRECISION_FLOAT) return 2.F / (1.F + m->expf(-x)) - 1;
    return (float)(2. / (1. + m->exp((double)-x)) - 1);
}

INLINED float tanh_of(float x, precision p, const elementary *m) {
    if (p == PRECISION_FLOAT) return 2 / (1 + m->expf(-2 * x)) - 1;
    double e = m->exp((double)(2 * x));
    return (float)((e - 1) / (e + 1));
}

/* The products by 0 and 1 are the forks' own: for large x, 0 * inf makes the result NaN. */
INLINED float elu(float x, precision p, const elementary *m) {
    float positive = x >= 0, negative = x < 0;
    if (p == PRECISION_FLOAT) return positive * x + negative * (m->expf(x) - 1);
    return (float)((double)(positive * x) + (double)negative * (m->exp((double)x) - 1));
}

INLINED float selu(float x, precision p, const elementary *m) {
    float positive = x >= 0, negative = x < 0;
    if (p == PRECISION_FLOAT) return positive * 1.0507F * x + negative * 1.0507F * 1.6732F * (m->expf(x) - 1);
    double wide = (double)x;
    return (float)((double)positive * 1.0507 * wide + (double)negative * 1.0507 * 1.6732 * (m->exp(wide) - 1));
}

INLINED float softplus(float x, const elementary *m) {
    const float threshold = 20;
    if (x > threshold) return x;
    if (x < -threshold) return m->expf(x);
    return m->logf(m->expf(x) + 1);
}

INLINED float gelu(float x, precision p, const elementary *m) {
    if (p == PRECISION_FLOAT) {
        double inner = 0.797885 * (double)x + 0.035677 * (double)m->cubef(x);
        return (float)(0.5 * (double)x * (double)(1 + m->tanhf((float)inner)));
    }
    double inner = (double)(0.797885F * x) + (double)0.035677F * m->cube((double)x);
    return (float)((double)(0.5F * x) * (1 + m->tanh(inner)));
}

INLINED float leaky(float x, precision p) {
    if (p == PRECISION_FLOAT) return x > 0 ? x : .1F * x;
    return x > 0 ? x : (float)(.1 * (double)x);
}

INLINED float relie(float x, precision p) {
    if (p == PRECISION_FLOAT) return x > 0 ? x : .01F * x;
    return x > 0 ? x : (float)(.01 * (double)x);
}

INLINED float ramp(float x, precision p) {
    float positive = x > 0;
    if (p == PRECISION_FLOAT) return x * positive + .1F * x;
    return (float)((double)(x * positive) + .1 * (double)x);
}

INLINED float plse(float x, precision p) {
    if (p == PRECISION_FLOAT) return x < -4 ? .01F * (x + 4) : x > 4 ? .01F * (x - 4) + 1 : .125F * x + .5F;
    if (x < -4) return (float)(.01 * (double)(x + 4));
    return (float)(x > 4 ? .01 * (double)(x - 4) + 1 : .125 * (double)x + .5);
}

INLINED float lhtan(float x, precision p) {
    if (p == PRECISION_FLOAT) return x < 0 ? .001F * x : x > 1 ? .001F * (x - 1) + 1 : x;
    if (x < 0) return (float)(.001 * (double)x);
    return x > 1 ? (float)(.001 * (double)(x - 1) + 1) : x;
}

INLINED float hardtan(float x) {
    return x < -1 ? -1 : x > 1 ? 1 : x;
}

/* The forks ask an int whether the floor is even; beyond its range it is one, as every float of that size is. */
INLINED float stair(float x, precision p) {
    float whole = floorf(x);
    double half = p == PRECISION_FLOAT ? (double)floorf(x / 2.F) : floor((double)x / 2.);
    int in_range = whole >= -2147483648.F && whole < 2147483648.F;
    if (!in_range || (int)whole % 2 == 0) return (float)half;
    if (p == PRECISION_FLOAT) return (x - whole) + (float)half;
    return (float)((double)(x - whole) + half);
}

INLINED float hard_mish(float x) {
    if (x > 0) return x;
    return x > -2 ? x * x / 2 + x : 0;
}

INLINED float relu6(float x) {
    return x < 0 ? 0 : x > 6 ? 6 : x;
}

INLINED float relu(float x) {
    return x * (float)(x > 0); /* -0 for negative x, as the product gives */
}

INLINED float mish(float x, const elementary *m) {
    return x * tanh_of(softplus(x, m), PRECISION_FLOAT, m);
}

INLINED float swish(float x, const elementary *m) {
    return x * logistic(x, PRECISION_FLOAT, m);
}

/* ---- which curve ---------------------------------------------------------------------------------------------------------------- */

/* The type in which the steps of this activation are computed, where they are not float in every fork. */
INLINED precision precision_of_activation(activation a, const arithmetic_rule *rule, int host) {
    switch (a) {
        case ACTIVATION_LEAKY: return host ? rule->leaky_host : rule->leaky;
        case ACTIVATION_REVLEAKY: return rule->leaky;
        case ACTIVATION_LOGISTIC:
        case ACTIVATION_TANH:
        case ACTIVATION_ELU:
        case ACTIVATION_SELU:
        case ACTIVATION_LOGGY: return rule->transcendental;
        case ACTIVATION_GELU: return rule->gelu;
        case ACTIVATION_RELIE:
        case ACTIVATION_RAMP:
        case ACTIVATION_PLSE:
        case ACTIVATION_LHTAN:
        case ACTIVATION_STAIR: return rule->piecewise;
        default: return PRECISION_FLOAT;
    }
}

INLINED float activated(float x, activation a, precision p, const elementary *m) {
    switch (a) {
        case ACTIVATION_LINEAR: return x;
        case ACTIVATION_LEAKY:
        case ACTIVATION_REVLEAKY: return leaky(x, p);
        case ACTIVATION_RELU: return relu(x);
        case ACTIVATION_RELU6: return relu6(x);
        case ACTIVATION_LOGISTIC: return logistic(x, p, m);
        case ACTIVATION_TANH: return tanh_of(x, p, m);
        case ACTIVATION_ELU: return elu(x, p, m);
        case ACTIVATION_SELU: return selu(x, p, m);
        case ACTIVATION_MISH: return mish(x, m);
        case ACTIVATION_SWISH: return swish(x, m);
        case ACTIVATION_HARD_MISH: return hard_mish(x);
        case ACTIVATION_GELU: return gelu(x, p, m);
        case ACTIVATION_LOGGY: return loggy(x, p, m);
        case ACTIVATION_RELIE: return relie(x, p);
        case ACTIVATION_RAMP: return ramp(x, p);
        case ACTIVATION_PLSE: return plse(x, p);
        case ACTIVATION_LHTAN: return lhtan(x, p);
        case ACTIVATION_STAIR: return stair(x, p);
        case ACTIVATION_HARDTAN: return hardtan(x);
        case ACTIVATION_NORMALIZE_CHANNELS:
        case ACTIVATION_NORMALIZE_CHANNELS_SOFTMAX:
        case ACTIVATION_NORMALIZE_CHANNELS_SOFTMAX_MAXVAL: break; /* of no single value, see activate_channels */
    }
    return x;
}

/* ---- over the c channels of a pixel, each step behind the last ------------------------------------------------------------------ */

/* The share of each positive value in their sum. */
INLINED void share_positive(float *x, size_t c, size_t step) {
    float sum = CHANNEL_SUM_START;
    for (size_t k = 0; k < c; ++k)
        if (x[k * step] > 0) sum += x[k * step];
    for (size_t k = 0; k < c; ++k) x[k * step] = x[k * step] > 0 ? x[k * step] / sum : 0;
}

INLINED void share_exponentials(float *x, size_t c, size_t step, int use_max, const elementary *m) {
    float sum = CHANNEL_SUM_START, max = use_max ? x[0] : 0;
    for (size_t k = 1; use_max && k < c; ++k)
        if (x[k * step] > max) max = x[k * step];
    for (size_t k = 0; k < c; ++k) sum += m->expf(x[k * step] - max);
    for (size_t k = 0; k < c; ++k) x[k * step] = m->expf(x[k * step] - max) / sum;
}

/* ---- softmax: n values at the given stride, see softmax_cpu --------------------------------------------------------------------- */

INLINED void share_powers(const float *input, size_t n, float temperature, size_t stride, precision exp_precision,
                          const elementary *m, float *output) {
    float sum = 0, largest = -FLT_MAX;
    for (size_t i = 0; i < n; ++i)
        if (input[i * stride] > largest) largest = input[i * stride];
    for (size_t i = 0; i < n; ++i) {
        float power = input[i * stride] / temperature - largest / temperature;
        float e = exp_precision == PRECISION_FLOAT ? m->expf(power) : (float)m->exp((double)power);
        sum += e;
        output[i * stride] = e;
    }
    for (size_t i = 0; i < n; ++i) output[i * stride] /= sum;
}

#endif
