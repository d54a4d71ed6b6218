/* The arithmetic of batch normalization as the forks' CUDA kernels have it (src/blas_kernels.cu fast_mean_kernel to
 * normalize_delta_kernel): everything in float, rounded at each operation, and sums in 512 strided parts. One text for C and for CUDA:
 * there a block of DEVICE_PARTS threads takes a channel, thread p computes part p alone (first = p, last = p + 1), and thread 0 the
 * total; in C one loop goes over the parts, which are independent. batchnorm_plain.c specifies it.
 *
 * Nothing but sqrtf and + - * / is used, and these are rounded correctly in IEEE arithmetic: with nvcc that needs -fmad=false, and
 * leaves the defaults -prec-div=true -prec-sqrt=true -ftz=false as they are. Two powf of the kernels are replaced, since CUDA's is not
 * rounded correctly: (x - mean)^2 is a product, (v + eps)^-1.5 is 1 / (w * sqrt(w)) of w = v + eps. */
#ifndef DARKNETBN_DEVICE_BATCHNORM_H
#define DARKNETBN_DEVICE_BATCHNORM_H

#include <math.h>
#include <stddef.h>

#include "../rules.h"
#include "inlined.h"

enum { DEVICE_PARTS = 512 };

/* Whether a rule's sums, roots and quotients are those below. */
DARKNETBN_DEVICE int device_computes(const batchnorm_rule *rule) {
    return rule->summation == SUMMATION_STRIDED && rule->moments == MOMENTS_QUOTIENT && rule->squares == PRECISION_FLOAT &&
           rule->intermediate == PRECISION_FLOAT && rule->inverse_cube == INVERSE_CUBE_ROOT && rule->quotients == PRECISION_FLOAT;
}

/* ---- values --------------------------------------------------------------------------------------------------------------------- */

DARKNETBN_DEVICE float device_normalized(float x, float mean, float root) {
    return (x - mean) / root;
}

DARKNETBN_DEVICE float device_scaled(float x_norm, float scale, float bias) {
    return x_norm * scale + bias;
}

/* ---- sums: parts first..last of the channel whose plane in image b begins at x + b * step -------------------------------------- */

/* parts[p - first] = 0 + x[p] + x[p + 512] + … of image 0, then of image 1, … */
DARKNETBN_DEVICE void device_sums(const float *x, size_t batch, size_t step, size_t spatial, size_t first, size_t last,
                                  float *__restrict__ parts) {
    for (size_t p = first; p < last; ++p) parts[p - first] = 0;
    for (size_t b = 0; b < batch; ++b)
        for (size_t i = 0; i < spatial; i += DEVICE_PARTS) {
            const float *plane = x + b * step + i;
            size_t end = spatial - i < last ? spatial - i : last;
            for (size_t p = first; p < end; ++p) parts[p - first] += plane[p];
        }
}

/* The same of (x - mean)^2 */
DARKNETBN_DEVICE void device_squares(const float *x, size_t batch, size_t step, size_t spatial, float mean, size_t first,
                                     size_t last, float *__restrict__ parts) {
    for (size_t p = first; p < last; ++p) parts[p - first] = 0;
    for (size_t b = 0; b < batch; ++b)
        for (size_t i = 0; i < spatial; i += DEVICE_PARTS) {
            const float *plane = x + b * step + i;
            size_t end = spatial - i < last ? spatial - i : last;
            for (size_t p = first; p < end; ++p) {
                float off = plane[p] - mean;
                parts[p - first] += off * off;
            }
        }
}

/* What a backward reads of a channel */
typedef struct {
    const float *x, *x_norm, *delta; /* of image 0; x_norm NULL where it is the quotient of x, mean and root */
    size_t batch, step, spatial;
    float mean, root, scale; /* root: that of the forward */
} device_channel;

/* Parts of the four sums of a backward */
typedef struct {
    float *delta, *product; /* delta; delta * x_norm */
    float *scaled, *off;    /* delta * scale; delta * scale * (x - mean) */
} device_delta_parts;

/* The parts of one row of at most 512 pixels, n of them, are added to. x_norm may be NULL. */
DARKNETBN_DEVICE void device_row_of_deltas(const device_channel *c, const float *x, const float *x_norm, const float *delta,
                                           size_t n, float *__restrict__ deltas, float *__restrict__ products,
                                           float *__restrict__ scaled, float *__restrict__ offs) {
    float mean = c->mean, root = c->root, scale = c->scale;
    for (size_t p = 0; p < n; ++p) {
        float off = x[p] - mean, times = delta[p] * scale;
        deltas[p] += delta[p];
        products[p] += delta[p] * (x_norm ? x_norm[p] : device_normalized(x[p], mean, root));
        scaled[p] += times;
        offs[p] += times * off;
    }
}

DARKNETBN_DEVICE void device_deltas(const device_channel *c, size_t first, size_t last, const device_delta_parts *parts) {
    for (size_t p = 0; p < last - first; ++p) parts->delta[p] = parts->product[p] = parts->scaled[p] = parts->off[p] = 0;
    for (size_t b = 0; b < c->batch; ++b)
        for (size_t i = 0; i < c->spatial; i += DEVICE_PARTS) {
            size_t at = b * c->step + i + first, end = c->spatial - i < last ? c->spatial - i : last;
            if (end <= first) continue;
            device_row_of_deltas(c, c->x + at, c->x_norm ? c->x_norm + at : NULL, c->delta + at, end - first, parts->delta,
                                 parts->product, parts->scaled, parts->off);
        }
}

/* start + part 0 + part 1 + …, one by one */
DARKNETBN_DEVICE float device_total(float start, const float *parts, size_t n) {
    for (size_t p = 0; p < n; ++p) start += parts[p];
    return start;
}

/* ---- a channel's constants ------------------------------------------------------------------------------------------------------ */

/* Mean or variance, of n values or n - 1 */
DARKNETBN_DEVICE float device_moment(float sum, size_t n) {
    return sum / (float)n;
}

DARKNETBN_DEVICE float device_root(float v, const epsilon_rule *e) {
    float value = (float)e->value;
    return e->side == SIDE_INSIDE ? sqrtf(v + value) : sqrtf(v) + value;
}

/* (v + eps)^-1.5 */
DARKNETBN_DEVICE float device_power(float v, const epsilon_rule *e) {
    float root = device_root(v, e), square = e->side == SIDE_INSIDE ? v + (float)e->value : root * root;
    return 1.F / (square * root);
}

DARKNETBN_DEVICE float device_mean_delta(float sum, float root) {
    return sum * (-1.F / root);
}

/* products: -.5f or -.5 in the source */
DARKNETBN_DEVICE float device_variance_delta(float sum, float power, precision products) {
    if (products == PRECISION_FLOAT) return sum * (-.5F * power);
    return (float)((double)sum * (-.5 * (double)power));
}

/* ---- deltas --------------------------------------------------------------------------------------------------------------------- */

/* What each value's delta of a channel is made of */
typedef struct {
    float scale, mean, root; /* root: that of the direct term */
    float variance_delta, mean_delta, n;
    precision products; /* 2.f or 2. in the source */
    int constant;       /* mean and variance do not depend on x */
} device_terms;

/* delta * scale / root + variance_delta * 2 * (x - mean) / n + mean_delta / n */
DARKNETBN_DEVICE float device_delta(const device_terms *t, float x, float delta) {
    float direct = delta * t->scale / t->root, off = x - t->mean, third = t->mean_delta / t->n;
    if (t->constant) return direct;
    if (t->products == PRECISION_FLOAT) return direct + t->variance_delta * 2.F * off / t->n + third;
    return (float)((double)direct + (double)t->variance_delta * 2. * (double)off / (double)t->n + (double)third);
}

#endif
