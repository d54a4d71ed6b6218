/* Signs for values (pjreddie/darknet src/convolutional_layer.c binarize_weights, binarize_cpu). */
#include <math.h>

#include "kernels.h"

void binarize_weights(const float *weights, size_t n, size_t size, float *signs, float *means) {
    for (size_t f = 0; f < n; ++f) {
        const float *w = weights + f * size;
        float sum = 0;
        for (size_t i = 0; i < size; ++i) sum += fabsf(w[i]);
        means[f] = sum / (float)size;
        for (size_t i = 0; i < size; ++i) signs[f * size + i] = w[i] > 0 ? 1.F : -1.F;
    }
}

void binarize_padded(const float *input, size_t planes, size_t h, size_t w, size_t pad, float *signs) {
    size_t wide = w + 2 * pad, area = (h + 2 * pad) * wide;
    for (size_t i = 0; i < planes * area; ++i) signs[i] = -1;
    for (size_t p = 0; p < planes; ++p)
        for (size_t row = 0; row < h; ++row)
            for (size_t column = 0; column < w; ++column)
                if (input[(p * h + row) * w + column] > 0) signs[p * area + (row + pad) * wide + column + pad] = 1;
}
