/* Derivatives of activations, as src/activations.h and gradient_array* of src/activations.c of the forks compute them: most from the
 * output y, also where that is not the derivative (gelu); mish, hard_mish and swish from what went in. For gelu and those over channels
 * a rule may ask for the derivative itself. */
#include "../internal.h"
#include "curves.h"

/* Of curves.h's gelu */
INLINED float exact_gelu_derivative(float x, const elementary *m) {
    const double linear = 0.797885, cubic = 0.035677;
    double wide = (double)x, bend = m->tanh((linear + cubic * wide * wide) * wide);
    return (float)(0.5 * (1 + bend) + 0.5 * wide * (1 - bend * bend) * (linear + 3 * cubic * wide * wide));
}

INLINED float gelu_derivative(float y, float x, gelu_gradient how, const elementary *m) {
    if (how == GELU_GRADIENT_EXACT) return exact_gelu_derivative(x, m);
    if (how == GELU_GRADIENT_FLOAT) {
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
        case ACTIVATION_GELU: return gelu_derivative(y, x, rule->gelu_gradient, m);
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
    switch (a) {
        case ACTIVATION_MISH:
        case ACTIVATION_SWISH:
        case ACTIVATION_HARD_MISH:
        case ACTIVATION_GELU:                         /* its exact derivative */
        case ACTIVATION_NORMALIZE_CHANNELS: return 1; /* likewise */
        default: return 0;
    }
}

/* ---- over the channels of a pixel ------------------------------------------------------------------------------------------- */

typedef struct {
    const float *y, *x;
    extent e;
    activation a;
    channel_gradient how;
    float *delta;
} channel_job;

static float sum_of_products(const float *y, const float *delta, size_t c, size_t step) {
    float sum = 0;
    for (size_t k = 0; k < c; ++k) sum += y[k * step] * delta[k * step];
    return sum;
}

/* Not the derivative: the forks multiply each delta by the sum of y * delta. */
static void multiply_by_sum(const float *y, float *delta, size_t c, size_t step, activation a) {
    float sum = sum_of_products(y, delta, c, step);
    for (size_t k = 0; k < c; ++k)
        if (a != ACTIVATION_NORMALIZE_CHANNELS || y[k * step] > 0) delta[k * step] *= sum;
}

/* y = x / (start + sum of the positive x) */
static void exact_shares(const float *y, const float *x, float *delta, size_t c, size_t step) {
    float total = CHANNEL_SUM_START, sum = sum_of_products(y, delta, c, step);
    for (size_t k = 0; k < c; ++k)
        if (x[k * step] > 0) total += x[k * step];
    for (size_t k = 0; k < c; ++k) delta[k * step] = x[k * step] > 0 ? (delta[k * step] - sum) / total : 0;
}

/* y = e^x / (start + sum of e^x); where the largest is taken off first, the start counts e^largest times as much. */
static void exact_exponentials(const float *y, float *delta, size_t c, size_t step, int use_max) {
    float sum = sum_of_products(y, delta, c, step);
    size_t largest = 0;
    for (size_t k = 0; k < c; ++k) {
        if (y[k * step] > y[largest * step]) largest = k;
        delta[k * step] = y[k * step] * (delta[k * step] - sum);
    }
    if (use_max) delta[largest * step] -= CHANNEL_SUM_START * y[largest * step] * sum;
}

static void multiply_pixels(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const channel_job *j = context;
    size_t c = j->e.c, step = j->e.spatial;
    for (size_t i = begin; i < end; ++i) {
        size_t first = i / step * c * step + i % step;
        if (j->how == CHANNEL_GRADIENT_SUM)
            multiply_by_sum(j->y + first, j->delta + first, c, step, j->a);
        else if (j->a == ACTIVATION_NORMALIZE_CHANNELS)
            exact_shares(j->y + first, j->x + first, j->delta + first, c, step);
        else
            exact_exponentials(j->y + first, j->delta + first, c, step, j->a == ACTIVATION_NORMALIZE_CHANNELS_SOFTMAX_MAXVAL);
    }
}

void gradient_channels(const float *y, const float *x, extent e, activation a, const arithmetic_rule *rule, float *delta) {
    if (!is_over_channels(a)) {
        gradient_array(y, x, e.batch * e.c * e.spatial, a, rule, delta);
        return;
    }
    channel_job j = {y, x, e, a, rule->channel_gradient, delta};
    parallel_for(e.batch * e.spatial, e.c * 4, multiply_pixels, &j);
}
