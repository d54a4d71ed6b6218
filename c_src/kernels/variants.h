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

/* A batchnorm takes VECTORS vectors of channels at a time, or half of them, or one */
enum { VECTORS = 4 };

/* How a channel's quotients are made, see batchnorm_quotients.h */
enum { BY_FLOAT, BY_PRODUCT, BY_PRODUCT_OR_TINY };
#define CUT_SLACK 0x1.48p-34 /* relative */
#define FUSED_SLACK 0x1p-46

/* head: the first bits of 1/root; low, high: the rest of it less and plus the slack */
typedef struct {
    float head, low, high;
} reciprocal;

typedef struct {
    double root;
    float mean;
    int how;
    reciprocal cut, fused;
} divisor;

/* Some planes that lie behind each other, each with its own divisor, scale and bias:
 * output = (input - mean) / root * scale + bias; copies of input and of the quotient. Where one of the three is NULL it is not made. */
typedef struct {
    size_t n, planes;
    const divisor *by;
    const float *input, *scales, *biases;
    float *x, *x_norm, *output;
} plane_normalization;

/* What one channel's delta goes through, see carry() of batchnorm_planes.h */
typedef struct {
    double root, inverse;                         /* inverse: 1/root */
    double variance_term, count, rate, mean_term; /* rate: variance_term/count */
    float mean, scale, of_first, least;           /* the result's magnitude is sure from of_first * |scaled delta| + least on */
} delta_terms;

typedef struct {
    size_t n, planes;
    const delta_terms *terms; /* (planes) */
    const float *x, *delta;
    float *output;
    int constant;
} plane_deltas;

/* Channels of one image that are summed side by side; their planes lie behind each other */
typedef struct {
    size_t channels, n; /* channels: VECTORS vectors, half of them, one or less; n: pixels of each */
    const float *next;  /* the planes that come next, any address in the end */
} group;

/* Sums over one image, for each channel: of delta, delta * x_norm, scaled delta, scaled delta * (x - mean) */
typedef struct {
    group group; /* of one vector or less */
    const float *next_delta;
    const float *x, *x_norm, *delta; /* x_norm: NULL where it is the quotient of x - mean */
    const divisor *by;               /* (channels) */
    const float *scales;             /* (channels) */
    float *sums[4];                  /* (a vector) */
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
    size_t lanes; /* channels of a vector */
    void (*sum)(const float *x, const group *g, float *sums);
    void (*squares)(const float *x, const group *g, const float *means, float *sums);
    void (*delta_sums)(const group_deltas *d);
    void (*normalize)(const plane_normalization *n);
    void (*carry)(const plane_deltas *d);
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
