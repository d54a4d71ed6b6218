/* The learning rate of an iteration, in the forks' types (get_current_rate of pjreddie/darknet src/network.c, AlexeyAB/darknet
 * src/network.c, hank-ai/darknet src-lib/darknet_network.cpp). */
#include <math.h>
#include <stdint.h>

#include "darknetbn.h"

static double power(const rate_rule *rule, float base, float exponent) {
    return rule->power == PRECISION_FLOAT ? (double)powf(base, exponent) : pow((double)base, (double)exponent);
}

/* Iterations from `step` on have rate 0 or nearly so; below it, an unsigned difference is as large. */
static float sigmoid(const rate_rule *rule, const rate_options *o, size_t iteration) {
    float distance = rule->unsigned_iteration ? (float)(iteration - o->step) : (float)((long long)iteration - (long long)o->step);
    float z = o->gamma * distance;
    double e = rule->exponential == PRECISION_FLOAT ? (double)expf(z) : exp((double)z);
    return (float)((double)o->learning_rate * (1. / (1. + e)));
}

static float restarts(const rate_rule *rule, const rate_options *o, size_t iteration) {
    size_t start = 0, cycle = o->cycle;
    if (o->cycle_multiplier == 1 && iteration) start = (iteration - 1) / cycle * cycle;
    while (cycle < iteration - start) {
        start += cycle;
        cycle = cycle > SIZE_MAX / o->cycle_multiplier ? SIZE_MAX : cycle * o->cycle_multiplier;
    }
    double wave = 1. + cos((double)(float)(iteration - start) * rule->pi / (double)cycle);
    return (float)((double)o->learning_rate_min + 0.5 * (double)(o->learning_rate - o->learning_rate_min) * wave);
}

static float in_steps(const rate_options *o, size_t iteration) {
    float rate = o->learning_rate;
    for (size_t i = 0; i < o->n_steps && o->steps[i] <= (long long)iteration; ++i) rate *= o->scales[i];
    return rate;
}

float learning_rate(const rate_rule *rule, const rate_options *o, size_t iteration, float random) {
    double factor = 1;
    if (iteration < o->burn_in)
        factor = power(rule, (float)iteration / (float)o->burn_in, o->power);
    else
        switch (o->policy) {
            case POLICY_CONSTANT: return o->learning_rate;
            case POLICY_STEPS: return in_steps(o, iteration);
            case POLICY_SIGMOID: return sigmoid(rule, o, iteration);
            case POLICY_SGDR: return restarts(rule, o, iteration);
            case POLICY_STEP: factor = pow((double)o->scale, (double)(iteration / o->step)); break;
            case POLICY_EXP: factor = pow((double)o->gamma, (double)iteration); break;
            case POLICY_POLY: factor = power(rule, 1 - (float)iteration / (float)o->max_batches, o->power); break;
            case POLICY_RANDOM: factor = power(rule, random, o->power); break;
        }
    return (float)((double)o->learning_rate * factor);
}
