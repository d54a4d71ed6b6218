/* The weights of a shortcut, normalised: one text for C and for CUDA. */
#ifndef DARKNETBN_SHORTCUT_WEIGHTS_H
#define DARKNETBN_SHORTCUT_WEIGHTS_H

#include "elementary.h"
#include "kernels.h"

static const float FIRST_ADDEND = 0.0001F; /* of the sum that normalises weights */

INLINED float positive(float w) {
    return w > 0 ? w : 0;
}

/* See shortcut_weight; of s only the sizes, the weights and their normalization are looked at. */
INLINED float normalized_weight(const shortcut_sum *s, size_t i, size_t o, const elementary *m) {
    size_t group = o / s->weights_step, layer_step = s->outputs / s->weights_step;
    const float *w = s->weights + group;
    if (s->normalization == NORMALIZATION_NONE) return w[i * layer_step];
    float sum = FIRST_ADDEND, max = -FLT_MAX;
    if (s->normalization == NORMALIZATION_SOFTMAX)
        for (size_t k = 0; k <= s->n; ++k)
            if (max < w[k * layer_step]) max = w[k * layer_step];
    for (size_t k = 0; k <= s->n; ++k)
        sum += s->normalization == NORMALIZATION_RELU ? positive(w[k * layer_step]) : m->expf(w[k * layer_step] - max);
    float own = w[i * layer_step];
    return (s->normalization == NORMALIZATION_RELU ? positive(own) : m->expf(own - max)) / sum;
}

#endif
