/* Derivatives of activations, as src/activations.h and gradient_array* of src/activations.c of the forks compute them: most from the
 * output y, also where that is not the derivative (gelu); mish, hard_mish and swish from what went in. */
#include "../internal.h"
#include "curves.h"

INLINED float gelu_derivative(float y, precision p, const elementary *m) {
    if (p == PRECISION_FLOAT) {
        double cube = (double)m->cubef(y), inner = 0.0356774 * cube + 0.797885 * (double)y;
        float e = m->expf((float)inner), sech = 2 / (e + m->expf(-(float)inner));
        double outer = (0.0535161 * cube + 0.398942 * (double)y) * (double)(sech * sech);
        return (float)(0.5 * (double)m->tanhf((float)inner) + outer + 0.5);
    }
    float cube = (float)m->cube((double)y), inner = 0.0356774F * cube + 0.797885F * y;
    float sech = 2 / (m->expf(inner) + m->expf(-inner));
    double outer = (double)(0.0535161F * cube + 0.398942F * y) * ((double)sech * (double)sech);
    return (float)(0.5 * (double)m->tanhf(inner) + outer + (double)0.5F);
}

INLINED float mish_derivative(float x, precision p, const elementary *m) {
    float sp = softplus(x, m);
    float rise = p == PRECISION_FLOAT ? 1 - m->expf(-sp) : (float)(1 - m->exp((double)-sp));
    float bend = p == PRECISION_FLOAT ? m->tanhf(sp) : (float)m->tanh((double)sp);
    return x * ((1 - bend * bend) * rise) + bend;
}

INLINED float selu_derivative(float y, precision p) {
    float positive = y >= 0, negative = y < 0;
    if (p == PRECISION_FLOAT) return positive * 1.0507F + negative * (y + 1.0507F * 1.6732F);
    return (float)((double)positive * 1.0507 + (double)negative * ((double)y + 1.0507 * 1.6732));
}

INLINED float loggy_derivative(float y) {
    float half = (y + 1) / 2;
    return 2 * (1 - half) * half;
}

INLINED float derivative(float y, float x, activation a, const arithmetic_rule *rule, const elementary *m) {
    switch (a) {
        case ACTIVATION_LEAKY:
        case ACTIVATION_REVLEAKY: return y > 0 ? 1 : .1F;
        case ACTIVATION_RELU: return y > 0;
        case ACTIVATION_RELU6: return y > 0 && y < 6;
        case ACTIVATION_LOGISTIC: return (1 - y) * y;
        case ACTIVATION_TANH: return 1 - y * y;
        case ACTIVATION_ELU: return (float)(y >= 0) + (float)(y < 0) * (y + 1);
        case ACTIVATION_SELU: return selu_derivative(y, rule->transcendental);
        case ACTIVATION_LOGGY: return loggy_derivative(y);
        case ACTIVATION_MISH: return mish_derivative(x, rule->mish_gradient, m);
        case ACTIVATION_SWISH: return y + logistic(x, PRECISION_FLOAT, m) * (1 - y);
        case ACTIVATION_HARD_MISH: return x > 0 ? 1 : x > -2 ? x + 1 : 0;
        case ACTIVATION_GELU: return gelu_derivative(y, rule->gelu_gradient, m);
        case ACTIVATION_RELIE: return y > 0 ? 1 : .01F;
        case ACTIVATION_RAMP: return rule->piecewise == PRECISION_FLOAT ? (float)(y > 0) + .1F : (float)((double)(y > 0) + .1);
        case ACTIVATION_PLSE: return y < 0 || y > 1 ? .01F : .125F;
        case ACTIVATION_LHTAN: return y > 0 && y < 1 ? 1 : .001F;
        case ACTIVATION_STAIR: return floorf(y) != y;
        case ACTIVATION_HARDTAN: return y > -1 && y < 1;
        default: return 1;
    }
}

typedef struct {
    const float *y, *x;
    activation a;
    const arithmetic_rule *rule;
    const elementary *functions;
    float *delta;
} job;

static void multiply_part(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const job *j = context;
    const float *restrict y = j->y, *restrict x = j->x ? j->x : j->y;
    float *restrict delta = j->delta;
    switch (j->a) { /* the frequent ones are loops of their own, which become vectors */
        case ACTIVATION_LEAKY:
            for (size_t i = begin; i < end; ++i) delta[i] *= derivative(y[i], x[i], ACTIVATION_LEAKY, j->rule, j->functions);
            break;
        case ACTIVATION_RELU:
            for (size_t i = begin; i < end; ++i) delta[i] *= derivative(y[i], x[i], ACTIVATION_RELU, j->rule, j->functions);
            break;
        case ACTIVATION_LOGISTIC:
            for (size_t i = begin; i < end; ++i) delta[i] *= derivative(y[i], x[i], ACTIVATION_LOGISTIC, j->rule, j->functions);
            break;
        default:
            for (size_t i = begin; i < end; ++i) delta[i] *= derivative(y[i], x[i], j->a, j->rule, j->functions);
    }
}

void gradient_array(const float *y, const float *x, size_t n, activation a, const arithmetic_rule *rule, float *delta) {
    job j = {y, x, a, rule, chosen_elementary(), delta};
    if (a != ACTIVATION_LINEAR) parallel_for(n, needs_activation_input(a) ? 64 : 4, multiply_part, &j);
}

int needs_activation_input(activation a) {
    return a == ACTIVATION_MISH || a == ACTIVATION_SWISH || a == ACTIVATION_HARD_MISH;
}

/* ---- over the channels of a pixel ------------------------------------------------------------------------------------------- */

typedef struct {
    const float *y;
    extent e;
    int positive; /* only where y is */
    float *delta;
} channel_job;

/* Not the derivative: the forks multiply each delta by the sum of y * delta. */
static void multiply_pixels(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const channel_job *j = context;
    for (size_t i = begin; i < end; ++i) {
        size_t first = i / j->e.spatial * j->e.c * j->e.spatial + i % j->e.spatial, last = first + j->e.c * j->e.spatial;
        float sum = 0;
        for (size_t k = first; k < last; k += j->e.spatial) sum += j->y[k] * j->delta[k];
        for (size_t k = first; k < last; k += j->e.spatial)
            if (!j->positive || j->y[k] > 0) j->delta[k] *= sum;
    }
}

void gradient_channels(const float *y, const float *x, extent e, activation a, const arithmetic_rule *rule, float *delta) {
    if (!is_over_channels(a)) {
        gradient_array(y, x, e.batch * e.c * e.spatial, a, rule, delta);
        return;
    }
    channel_job j = {y, e, a == ACTIVATION_NORMALIZE_CHANNELS, delta};
    parallel_for(e.batch * e.spatial, e.c * 4, multiply_pixels, &j);
}
