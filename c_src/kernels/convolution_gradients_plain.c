/* Gradients of a convolution, the specification (pjreddie/darknet src/convolutional_layer.c backward_convolutional_layer).
 *
 *   updates[f][k] += sum over pixels j of delta[f][j] * column[k][j]      one float sum an image, then added (gemm_nt)
 *   columns[k][j]  = sum over filters f of weights[f][k] * delta[f][j]    (gemm_tn), each added to the pixel that it came from
 *                                                                         (col2im: k = channel, kernel row, kernel column in turn) */
#include <string.h>

#include "../internal.h"
#include "gradients.h"

/* Where kernel element k lies at output pixel j of an image; -1 in the padding. */
static ptrdiff_t place(const convolution_shape *s, size_t k, size_t j) {
    size_t area = s->size * s->size;
    if (s->direct) return (ptrdiff_t)(k * convolution_pixels(s) + j);
    size_t y = j / s->out_w * s->stride_y + k % area / s->size * s->dilation;
    size_t x = j % s->out_w * s->stride_x + k % s->size * s->dilation;
    if (y < s->pad_y || y - s->pad_y >= s->h || x < s->pad_x || x - s->pad_x >= s->w) return -1;
    return (ptrdiff_t)((k / area * s->h + y - s->pad_y) * s->w + x - s->pad_x);
}

void weight_gradients_plain(const convolution_shape *s, size_t batch, size_t groups, const float *input, const float *delta,
                            float *updates) {
    size_t depth = convolution_depth(s), pixels = convolution_pixels(s);
    for (size_t i = 0; i < batch * groups; ++i)
        for (size_t f = 0; f < s->n; ++f)
            for (size_t k = 0; k < depth; ++k) {
                const float *image = input + i * s->c * s->h * s->w, *d = delta + (i * s->n + f) * pixels;
                float sum = 0;
                for (size_t j = 0; j < pixels; ++j) sum += d[j] * (place(s, k, j) < 0 ? 0 : image[place(s, k, j)]);
                updates[(i % groups * s->n + f) * depth + k] += sum;
            }
}

int writes_directly(const convolution_shape *s, input_delta how) {
    return how != INPUT_DELTA_OVERWRITTEN && s->direct;
}

int overwrites(const convolution_shape *s, input_delta how) {
    return how == INPUT_DELTA_OVERWRITTEN || (how == INPUT_DELTA_OVERWRITTEN_BY_1X1 && s->size == 1);
}

void input_gradients_plain(const convolution_shape *s, size_t batch, size_t groups, const float *weights, const float *delta,
                           input_delta how, float *into) {
    size_t depth = convolution_depth(s), pixels = convolution_pixels(s), image = s->c * s->h * s->w;
    convolution_shape read = *s;
    if (!writes_directly(s, how)) read.direct = 0;
    for (size_t i = 0; i < batch * groups; ++i) {
        float *to = into + i * image;
        if (overwrites(s, how) && !read.direct) memset(to, 0, image * sizeof *to);
        for (size_t k = 0; k < depth; ++k)
            for (size_t j = 0; j < pixels; ++j) {
                float sum = 0;
                for (size_t f = 0; f < s->n; ++f)
                    sum += weights[(i % groups * s->n + f) * depth + k] * delta[(i * s->n + f) * pixels + j];
                ptrdiff_t at = place(&read, k, j);
                if (at >= 0) to[at] = read.direct && overwrites(s, how) ? sum : to[at] + sum;
            }
    }
}
