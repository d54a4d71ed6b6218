/* Deltas and weights of a sum of layers (AlexeyAB/darknet src/blas.c backward_shortcut_multilayer_cpu). */
#include "../internal.h"
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
