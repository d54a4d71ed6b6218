/* What the gradients of a convolution share. */
#ifndef DARKNETBN_GRADIENTS_H
#define DARKNETBN_GRADIENTS_H

#include "kernels.h"

/* Rows of a group's matrix, and its columns */
static inline size_t convolution_depth(const convolution_shape *s) {
    return s->c * s->size * s->size;
}

static inline size_t convolution_pixels(const convolution_shape *s) {
    return s->out_h * s->out_w;
}

/* Whether the product of the weights' transpose lies as the image does, since the image is read as the matrix. The forks that always
 * overwrite move it by strides nevertheless. */
int writes_directly(const convolution_shape *s, input_delta how);
/* Whether the delta before is overwritten. */
int overwrites(const convolution_shape *s, input_delta how);

/* Output columns begin..end lie within the image under kernel column dx. */
typedef struct {
    size_t begin, end;
} inside;

static inline inside columns_inside(const convolution_shape *s, size_t dx) {
    size_t begin = dx >= s->pad_x ? 0 : (s->pad_x - dx + s->stride_x - 1) / s->stride_x;
    size_t end = s->w + s->pad_x > dx ? (s->w + s->pad_x - dx - 1) / s->stride_x + 1 : 0;
    if (end > s->out_w) end = s->out_w;
    return (inside){begin, begin < end ? end : begin};
}

/* ---- depthwise_gradients.c -------------------------------------------------------------------------------------------------- */

/* Whether add_depthwise_gradients() may be used, and the floats that it needs: a copy of the image with its padding. */
int is_depthwise_gradient(const convolution_shape *s);
size_t depthwise_gradient_scratch(const convolution_shape *s);
/* What one image gives the weights of one filter of one channel */
void add_depthwise_gradients(const convolution_shape *s, const float *image, const float *delta, float *padded, float *updates);

#endif
