/* What is compiled once for each instruction set, and the table through which it is called (cpu.c). */
#ifndef DARKNETBN_VARIANTS_H
#define DARKNETBN_VARIANTS_H

#include "kernels.h"

/* Filters first..end of one group over a strip of pixels: output[f][0..count) takes up the products of channels begin..end. */
typedef struct {
    const convolution_shape *s;
    size_t begin, end; /* channels; the sums start from 0 where begin is 0, else from what output holds */
    size_t first_filter, end_filter;
} convolution_block;

typedef struct {
    const char *name;
    size_t strip; /* pixels that a tile covers */
    /* strip[k][0..strip) = the matrix's pixels first..first+count of channels begin..end; 0 beyond count */
    void (*pack)(const convolution_block *b, const float *image, size_t first, size_t count, float *to);
    /* output: of filter 0 and pixel 0; strips: packed one after another from pixel first on */
    void (*multiply)(const convolution_block *b, const float *weights, const float *strips, size_t first, size_t pixels,
                     float *output);
    /* one filter of one channel; scratch: depthwise_scratch() floats */
    void (*depthwise)(const convolution_shape *s, const float *image, const float *weights, float *scratch, float *output);
} variant;

extern const variant portable_variant;
extern const variant avx2_variant; /* its name is NULL where it was not compiled */

/* The one that fits this processor, or that set_cpu_variant() says. */
const variant *chosen_variant(void);

/* Whether depthwise() may be used, and what it needs: a copy of the image with its padding, columns sorted by column % stride. */
int is_depthwise(const convolution_shape *s);
size_t depthwise_scratch(const convolution_shape *s);

#endif
