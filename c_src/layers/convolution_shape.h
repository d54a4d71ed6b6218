/* What a convolutional layer's sums run over, for the CPU and for devices; C and C++. */
#ifndef DARKNETBN_CONVOLUTION_SHAPE_H
#define DARKNETBN_CONVOLUTION_SHAPE_H

#include "../darknetbn.h"

/* The forks skip im2col for a kernel of one pixel; it may not read past the image. */
static inline int reads_directly(const layer *l, size_t out_h, size_t out_w) {
    if (l->size != 1 || out_h * out_w > l->h * l->w) return 0;
    return l->layer_rule.direct_1x1 == DIRECT_1X1_ANY_STRIDE || l->stride_x == 1;
}

/* Of one group; the output is what the convolution itself makes, before a blur. */
static inline convolution_shape shape_of_group(const layer *l) {
    convolution_shape s;
    s.c = l->c / l->groups, s.h = l->h, s.w = l->w, s.n = l->n / l->groups;
    s.out_h = l->blur ? l->blur->h : l->out_h, s.out_w = l->blur ? l->blur->w : l->out_w;
    s.size = l->size, s.stride_x = l->stride_x, s.stride_y = l->stride_y;
    s.pad_x = s.pad_y = l->pad * l->dilation, s.dilation = l->dilation;
    s.direct = reads_directly(l, s.out_h, s.out_w);
    return s;
}

/* The kernel of a blur, over 2 x 2 or 3 x 3 pixels: 1/4 each, or 1 2 1, 2 4 2, 1 2 1 over 16 */
static inline float blur_weight(size_t size, size_t row, size_t column) {
    float weight = (float)((row == 1 ? 2 : 1) * (column == 1 ? 2 : 1));
    return size == 2 ? 1 / 4.F : weight / 16.F;
}

#endif
