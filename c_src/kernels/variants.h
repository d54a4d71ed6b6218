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

enum { BLOCK_DEPTH = 640 }; /* most products of a block, unless one channel alone has more */

enum { WIDTH = 16 }; /* channels that a batchnorm takes at a time, or half of them */

/* How a channel's quotients are made, see quotients() of batchnorm_planes.h */
enum { BY_FLOAT, BY_DOUBLE, BY_PRODUCT, BY_PRODUCT_OR_TINY };
#define QUOTIENT_SLACK 0x1.06p-34 /* relative */

typedef struct {
    double root;
    float mean, head, low, high; /* head: 12 bits of 1/root; low, high: the rest of it less and plus the slack */
    int how;
} divisor;

/* out = (input - mean) / root * scale + bias; copies of input and of the quotient where these are not NULL */
typedef struct {
    size_t n;
    const divisor *by;
    const float *input;
    float *x, *x_norm, *output, scale, bias;
} plane_normalization;

typedef struct {
    size_t n;
    const float *x, *delta;
    float *output, mean, scale;
    double root, variance_term, mean_term, count;
    int constant;
} plane_delta;

/* Channels of one image that are summed side by side */
typedef struct {
    size_t width, n; /* channels, pixels of each */
} group;

/* Sums over one image, for each channel: of delta, delta * x_norm, scaled delta, scaled delta * (x - mean) */
typedef struct {
    group group;
    const float *const *x, *const *x_norm, *const *delta; /* (width) planes */
    const float *means, *scales;                          /* (width) */
    float *sums[4];                                       /* (width) */
} group_deltas;

/* x = activation(x + bias) for n values, in the precision that the rule gives it, with the package's own functions */
typedef void (*activation_loop)(float *x, size_t n, float bias);

/* The last strip is as wide as half or a quarter of one where no more pixels are left. */
static inline size_t width_of_strip(size_t strip, size_t pixels) {
    return pixels > strip / 2 ? strip : pixels > strip / 4 ? strip / 2 : strip / 4;
}

typedef struct {
    const char *name;
    size_t rows, strip; /* filters and pixels that a tile covers */
    /* One strip after another from pixel first on, for channels begin..end: strip[k][0..strip) = the matrix's pixels, 0 beyond the
     * last of the pixels; width_of_strip(). */
    void (*pack)(const convolution_block *b, const float *image, size_t first, size_t pixels, float *strips);
    /* output: of filter 0 and pixel 0 */
    void (*multiply)(const convolution_block *b, const float *weights, const float *strips, size_t first, size_t pixels,
                     float *output);
    /* one filter of one channel; scratch: depthwise_scratch() floats, zeros before the first image of a shape */
    void (*depthwise)(const convolution_shape *s, const float *image, const float *weights, float *scratch, float *output);
    /* n more values of each channel go into their sums, in order */
    void (*sum)(const float *const *x, const group *g, float *sums);
    void (*squares)(const float *const *x, const group *g, const float *means, float *sums);
    void (*delta_sums)(const group_deltas *d);
    void (*normalize)(const plane_normalization *n);
    void (*carry)(const plane_delta *d);
    const activation_loop (*activations)[2]; /* [activation of a single value][precision] */
} variant;

extern const variant portable_variant;
extern const variant avx512_variant, avx2_variant, neon_variant; /* the name is NULL where one was not compiled */

/* The one that fits this processor, or that set_cpu_variant() says. */
const variant *chosen_variant(void);

enum { DEPTHWISE_AREA = 49 }; /* of the largest kernel that depthwise() takes */

/* Whether depthwise() may be used, and what it needs: a copy of the image with its padding, columns sorted by column % stride. */
int is_depthwise(const convolution_shape *s);
size_t depthwise_scratch(const convolution_shape *s);

#endif
