/* Gradients of the weights of one filter of one channel, see convolution_gradients_plain.c: the elements of a kernel's row lie side by
 * side in the image, so a vector holds their sums. */
#include <string.h>

#include "../internal.h"
#include "gradients.h"

enum { LANES = 4, LARGEST = 2 * LANES };

typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));
typedef float loose_lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));

int is_depthwise_gradient(const convolution_shape *s) {
    return s->c == 1 && s->n == 1 && !s->direct && s->dilation == 1 && s->size <= LARGEST && s->pad_x <= s->w && s->pad_y <= s->h;
}

size_t depthwise_gradient_scratch(const convolution_shape *s) {
    return (s->h + 2 * s->pad_y) * (s->w + 2 * s->pad_x) + LARGEST;
}

/* sums[dy][dx] over the pixels of one image, in order */
static inline __attribute__((always_inline)) void sum_windows(const convolution_shape *s, size_t size, const float *padded,
                                                              const float *delta, float (*sums)[LARGEST]) {
    size_t width = s->w + 2 * s->pad_x;
    lanes held[LARGEST][2] = {0};
    for (size_t y = 0; y < s->out_h; ++y)
        for (size_t x = 0; x < s->out_w; ++x) {
            float d = delta[y * s->out_w + x];
            const float *from = padded + y * s->stride_y * width + x * s->stride_x;
            for (size_t dy = 0; dy < size; ++dy) {
                held[dy][0] += d * *(const loose_lanes *)(from + dy * width);
                if (size > LANES) held[dy][1] += d * *(const loose_lanes *)(from + dy * width + LANES);
            }
        }
    memcpy(sums, held, sizeof held);
}

void add_depthwise_gradients(const convolution_shape *s, const float *image, const float *delta, float *padded, float *updates) {
    size_t width = s->w + 2 * s->pad_x;
    float sums[LARGEST][LARGEST];
    memset(padded, 0, depthwise_gradient_scratch(s) * sizeof *padded);
    for (size_t y = 0; y < s->h; ++y) memcpy(padded + (y + s->pad_y) * width + s->pad_x, image + y * s->w, s->w * sizeof *image);
    switch (s->size) {
        case 3: sum_windows(s, 3, padded, delta, sums); break;
        case 5: sum_windows(s, 5, padded, delta, sums); break;
        default: sum_windows(s, s->size, padded, delta, sums);
    }
    for (size_t k = 0; k < s->size * s->size; ++k) updates[k] += sums[k / s->size][k % s->size];
}
