/* Activations (src/activations.h and src/gemm.c of the forks; hank-ai src-lib/activations.hpp).
 *
 * The rule says in which type a step is computed; where C promotes, the casts are written out. What a fork computes as a constant
 * zero for lack of a case (relu6, and swish, mish, hard_mish outside convolutions) is what its name says. */
#include <math.h>

#include "../internal.h"
#include "kernels.h"

static float logistic(float x, precision p) {
    if (p == PRECISION_FLOAT) return 1.F / (1.F + expf(-x));
    return (float)(1. / (1. + exp((double)-x)));
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
