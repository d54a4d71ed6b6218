/* Activations (src/activations.h and src/gemm.c of the forks; hank-ai src-lib/activations.hpp).
 *
 * The rule says in which type a step is computed; where C promotes, the casts are written out. What a fork computes as a constant
 * zero for lack of a case (relu6, and swish, mish, hard_mish and those over channels outside convolutions) is what its name says. */
#include <float.h>
#include <math.h>

#include "../internal.h"
#include "kernels.h"

static float logistic(float x, precision p) {
    if (p == PRECISION_FLOAT) return 1.F / (1.F + expf(-x));
    return (float)(1. / (1. + exp((double)-x)));
}

static float loggy(float x, precision p) {
    if (p == PRECISION_FLOAT) return 2.F / (1.F + expf(-x)) - 1;
    return (float)(2. / (1. + exp((double)-x)) - 1);
}

static float tanh_of(float x, precision p) {
    if (p == PRECISION_FLOAT) return 2 / (1 + expf(-2 * x)) - 1;
    double e = exp((double)(2 * x));
    return (float)((e - 1) / (e + 1));
}

/* The products by 0 and 1 are the forks' own: for large x, 0 * inf makes the result NaN. */
static float elu(float x, precision p) {
    float positive = x >= 0, negative = x < 0;
    if (p == PRECISION_FLOAT) return positive * x + negative * (expf(x) - 1);
    return (float)((double)(positive * x) + (double)negative * (exp((double)x) - 1));
}

static float selu(float x, precision p) {
    float positive = x >= 0, negative = x < 0;
    if (p == PRECISION_FLOAT) return positive * 1.0507F * x + negative * 1.0507F * 1.6732F * (expf(x) - 1);
    double wide = (double)x;
    return (float)((double)positive * 1.0507 * wide + (double)negative * 1.0507 * 1.6732 * (exp(wide) - 1));
}

static float softplus(float x) {
    const float threshold = 20;
    if (x > threshold) return x;
    if (x < -threshold) return expf(x);
    return logf(expf(x) + 1);
}

static float gelu(float x, precision p) {
    if (p == PRECISION_FLOAT) {
        double inner = 0.797885 * (double)x + 0.035677 * (double)powf(x, 3);
        return (float)(0.5 * (double)x * (double)(1 + tanhf((float)inner)));
    }
    double inner = (double)(0.797885F * x) + (double)0.035677F * pow((double)x, 3);
    return (float)((double)(0.5F * x) * (1 + tanh(inner)));
}

static float leaky(float x, precision p) {
    if (p == PRECISION_FLOAT) return x > 0 ? x : .1F * x;
    return x > 0 ? x : (float)(.1 * (double)x);
}

static float relie(float x, precision p) {
    if (p == PRECISION_FLOAT) return x > 0 ? x : .01F * x;
    return x > 0 ? x : (float)(.01 * (double)x);
}

static float ramp(float x, precision p) {
    float positive = x > 0;
    if (p == PRECISION_FLOAT) return x * positive + .1F * x;
    return (float)((double)(x * positive) + .1 * (double)x);
}

static float plse(float x, precision p) {
    if (p == PRECISION_FLOAT) return x < -4 ? .01F * (x + 4) : x > 4 ? .01F * (x - 4) + 1 : .125F * x + .5F;
    if (x < -4) return (float)(.01 * (double)(x + 4));
    return (float)(x > 4 ? .01 * (double)(x - 4) + 1 : .125 * (double)x + .5);
}

static float lhtan(float x, precision p) {
    if (p == PRECISION_FLOAT) return x < 0 ? .001F * x : x > 1 ? .001F * (x - 1) + 1 : x;
    if (x < 0) return (float)(.001 * (double)x);
    return x > 1 ? (float)(.001 * (double)(x - 1) + 1) : x;
}

static float hardtan(float x) {
    return x < -1 ? -1 : x > 1 ? 1 : x;
}

/* The forks ask an int whether the floor is even; beyond its range it is one, as every float of that size is. */
static float stair(float x, precision p) {
    float whole = floorf(x);
    double half = p == PRECISION_FLOAT ? (double)floorf(x / 2.F) : floor((double)x / 2.);
    int in_range = whole >= -2147483648.F && whole < 2147483648.F;
    if (!in_range || (int)whole % 2 == 0) return (float)half;
    if (p == PRECISION_FLOAT) return (x - whole) + (float)half;
    return (float)((double)(x - whole) + half);
}

static float hard_mish(float x) {
    if (x > 0) return x;
    return x > -2 ? x * x / 2 + x : 0;
}

static float relu6(float x) {
    return x < 0 ? 0 : x > 6 ? 6 : x;
}

typedef struct {
    float *x;
    activation a;
    const arithmetic_rule *rule;
    precision leaky;
} job;

static float activate(float x, const job *j) {
    const arithmetic_rule *rule = j->rule;
    switch (j->a) {
        case ACTIVATION_LINEAR: return x;
        case ACTIVATION_LEAKY: return leaky(x, j->leaky);
        case ACTIVATION_REVLEAKY: return leaky(x, rule->leaky);
        case ACTIVATION_RELU: return x * (float)(x > 0); /* -0 for negative x, as the product gives */
        case ACTIVATION_RELU6: return relu6(x);
        case ACTIVATION_LOGISTIC: return logistic(x, rule->transcendental);
        case ACTIVATION_TANH: return tanh_of(x, rule->transcendental);
        case ACTIVATION_ELU: return elu(x, rule->transcendental);
        case ACTIVATION_SELU: return selu(x, rule->transcendental);
        case ACTIVATION_MISH: return x * tanh_of(softplus(x), PRECISION_FLOAT);
        case ACTIVATION_SWISH: return x * logistic(x, PRECISION_FLOAT);
        case ACTIVATION_HARD_MISH: return hard_mish(x);
        case ACTIVATION_GELU: return gelu(x, rule->gelu);
        case ACTIVATION_LOGGY: return loggy(x, rule->transcendental);
        case ACTIVATION_RELIE: return relie(x, rule->piecewise);
        case ACTIVATION_RAMP: return ramp(x, rule->piecewise);
        case ACTIVATION_PLSE: return plse(x, rule->piecewise);
        case ACTIVATION_LHTAN: return lhtan(x, rule->piecewise);
        case ACTIVATION_STAIR: return stair(x, rule->piecewise);
        case ACTIVATION_HARDTAN: return hardtan(x);
        case ACTIVATION_NORMALIZE_CHANNELS:
        case ACTIVATION_NORMALIZE_CHANNELS_SOFTMAX:
        case ACTIVATION_NORMALIZE_CHANNELS_SOFTMAX_MAXVAL: break; /* of no single value, see activate_channels */
    }
    return x;
}

static void activate_part(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const job *j = context;
    float *x = j->x;
    if (j->a == ACTIVATION_LEAKY &&
        j->leaky == PRECISION_DOUBLE) { /* most of all activations: a loop that the compiler vectorises */
        for (size_t i = begin; i < end; ++i) x[i] = leaky(x[i], PRECISION_DOUBLE);
        return;
    }
    for (size_t i = begin; i < end; ++i) x[i] = activate(x[i], j);
}

void activate_array(float *x, size_t n, activation a, const arithmetic_rule *rule, int host) {
    if (a == ACTIVATION_LINEAR) return;
    job j = {x, a, rule, host ? rule->leaky_host : rule->leaky};
    parallel_for(n, a == ACTIVATION_LEAKY || a == ACTIVATION_RELU ? 2 : 32, activate_part, &j);
}

/* ---- over the channels of a pixel ------------------------------------------------------------------------------------------- */

typedef struct {
    float *x;
    extent e;
    activation a;
} channel_job;

/* The share of each positive value in their sum. */
static void share_positive(float *x, size_t c, size_t step) {
    float sum = 0.0001F;
    for (size_t k = 0; k < c; ++k)
        if (x[k * step] > 0) sum += x[k * step];
    for (size_t k = 0; k < c; ++k) x[k * step] = x[k * step] > 0 ? x[k * step] / sum : 0;
}

static void share_exponentials(float *x, size_t c, size_t step, int use_max) {
    float sum = 0.0001F, max = use_max ? x[0] : 0;
    for (size_t k = 1; use_max && k < c; ++k)
        if (x[k * step] > max) max = x[k * step];
    for (size_t k = 0; k < c; ++k) sum += expf(x[k * step] - max);
    for (size_t k = 0; k < c; ++k) x[k * step] = expf(x[k * step] - max) / sum;
}

static void share_channels(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const channel_job *j = context;
    for (size_t i = begin; i < end; ++i) {
        float *pixel = j->x + i / j->e.spatial * j->e.c * j->e.spatial + i % j->e.spatial;
        if (j->a == ACTIVATION_NORMALIZE_CHANNELS)
            share_positive(pixel, j->e.c, j->e.spatial);
        else
            share_exponentials(pixel, j->e.c, j->e.spatial, j->a == ACTIVATION_NORMALIZE_CHANNELS_SOFTMAX_MAXVAL);
    }
}

void activate_channels(float *x, extent e, activation a, const arithmetic_rule *rule, int host) {
    switch (a) {
        case ACTIVATION_NORMALIZE_CHANNELS:
        case ACTIVATION_NORMALIZE_CHANNELS_SOFTMAX:
        case ACTIVATION_NORMALIZE_CHANNELS_SOFTMAX_MAXVAL: {
            channel_job j = {x, e, a};
            parallel_for(e.batch * e.spatial, e.c * 32, share_channels, &j);
            return;
        }
        default: activate_array(x, e.batch * e.c * e.spatial, a, rule, host);
    }
}
