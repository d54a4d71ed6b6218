/* What is compiled once for each instruction set, and the table through which it is called (cpu.c). */
#ifndef DARKNETBN_VARIANTS_H
#define DARKNETBN_VARIANTS_H

#include "kernels.h"

/* What takes part in one step: the products of some channels for some filters of one group. */
typedef struct {
    const convolution_shape *s;
    size_t begin, end; /* channels; the sums start from 0 where begin is 0, else from what output holds */
    size_t first_filter, end_filter;
} convolution_block;

typedef struct {
    const char *name;
    size_t strip; /* pixels that a tile covers */
    /* One strip after another from pixel first on, for channels begin..end: strip[k][0..strip) = the matrix's pixels, 0 beyond the
     * last of the pixels. */
    void (*pack)(const convolution_block *b, const float *image, size_t first, size_t pixels, float *strips);
    /* output: of filter 0 and pixel 0 */
    void (*multiply)(const convolution_block *b, const float *weights, const float *strips, size_t first, size_t pixels,
                     float *output);
    /* one filter of one channel; scratch: depthwise_scratch() floats */
    void (*depthwise)(const convolution_shape *s, const float *image, const float *weights, float *scratch, float *output);
} variant;

extern const variant portable_variant;
extern const variant avx2_variant; /* its name is NULL where it was not compiled */

/* The one that fits this processor, or that set_cpu_variant() says. */
const variant *chosen_variant(void);

enum { DEPTHWISE_AREA = 49 }; /* of the largest kernel that depthwise() takes */

/* Whether depthwise() may be used, and what it needs: a copy of the image with its padding, columns sorted by column % stride. */
int is_depthwise(const convolution_shape *s);
size_t depthwise_scratch(const convolution_shape *s);

#endif
