/* Deltas and weights of a sum of layers (AlexeyAB/darknet src/blas.c backward_shortcut_multilayer_cpu). */
#include <float.h>

#include "../internal.h"
#include "elementary.h"
#include "kernels.h"

/* The part of one source, or of the input, in the outputs first..stop that share a weight */
static void spread(const float *delta, size_t first, size_t stop, float weight, float *into) {
    for (size_t k = first; k < stop; ++k) into[k] += delta[k] * weight;
}

static void sum_products(const float *delta, const float *x, size_t first, size_t stop, float *sum) {
    for (size_t k = first; k < stop; ++k) *sum += delta[k] * x[k];
}

void shortcut_multilayer_gradients(const float *input, const float *delta, size_t batch, const shortcut_sum *s, float *input_delta,
                                   float *const *deltas, float *weight_gradients) {
    size_t groups = s->weights ? s->outputs / s->weights_step : 0;
    for (size_t i = 0; i <= s->n; ++i) {
        const float *x = i ? s->inputs[i - 1] : input;
        float *into = i ? deltas[i - 1] : input_delta;
        size_t floats = s->outputs;
        if (i) floats = s->sources[i - 1].c * s->sources[i - 1].h * s->sources[i - 1].w;
        size_t common = floats < s->outputs ? floats : s->outputs;
        for (size_t o = 0, stop; o < common; o = stop) {
            stop = s->weights && o + s->weights_step < common ? o + s->weights_step : common;
            float w = s->weights ? shortcut_weight(s, i, o) : 1;
            for (size_t b = 0; b < batch; ++b) {
                const float *d = delta + b * s->outputs;
                if (into) spread(d, o, stop, w, into + b * floats);
                if (s->weights) sum_products(d, x + b * floats, o, stop, weight_gradients + i * groups + o / s->weights_step);
            }
        }
    }
}

/* With S = 1e-4 + the sum of f(w), of which w_i is normalised to f(w_i) / S: gradient_j = f'(w_j) / S * (g_j - sum over i of
 * f(w_i) / S * g_i). A softmax takes its largest weight from each before exp, so this one moves the 1e-4 against the sum, too. */
void normalized_weight_gradients(const shortcut_sum *s, const float *weight_gradients, float *updates) {
    size_t groups = s->outputs / s->weights_step;
    int relu = s->normalization == NORMALIZATION_RELU;
    const elementary *m = chosen_elementary();
    for (size_t g = 0; g < groups; ++g) {
        double sum = (double)0.0001F, common = 0;
        float largest = -FLT_MAX;
        size_t leader = 0;
        for (size_t i = 0; i <= s->n; ++i)
            if (s->weights[i * groups + g] > largest) largest = s->weights[groups * (leader = i) + g];
        for (size_t i = 0; i <= s->n; ++i) {
            float w = s->weights[i * groups + g], value = relu ? (w > 0 ? w : 0) : m->expf(w - largest);
            sum += (double)value;
            common += (double)value * weight_gradients[i * groups + g];
        }
        for (size_t i = 0; i <= s->n; ++i) {
            float w = s->weights[i * groups + g];
            double slope = relu ? w > 0 : (double)m->expf(w - largest);
            double gradient = slope / sum * (weight_gradients[i * groups + g] - common / sum);
            if (!relu && i == leader) gradient += (double)0.0001F * common / (sum * sum);
            updates[i * groups + g] += (float)gradient;
        }
    }
}
