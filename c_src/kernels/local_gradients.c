/* Gradients of the layers in local.c (pjreddie/darknet src/local_layer.c, src/deconvolutional_layer.c with src/gemm.c, src/im2col.c
 * and src/col2im.c). */
#include "../internal.h"
#include "kernels.h"

typedef struct {
    const local_shape *s;
    size_t batch;
    const float *input, *weights, *delta;
    float *into;
} job;

/* Where kernel element k of output pixel j lies in an image; -1 outside */
static ptrdiff_t place(const local_shape *s, size_t k, size_t j) {
    size_t area = s->size * s->size;
    size_t y = j / s->out_w * s->stride + k % area / s->size; /* padding included */
    size_t x = j % s->out_w * s->stride + k % s->size;
    if (y < s->pad || y - s->pad >= s->h || x < s->pad || x - s->pad >= s->w) return -1;
    return (ptrdiff_t)((k / area * s->h + y - s->pad) * s->w + x - s->pad);
}

static void add_local_weights(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const job *job = context;
    const local_shape *s = job->s;
    size_t depth = s->c * s->size * s->size, pixels = s->out_h * s->out_w;
    for (size_t b = 0; b < job->batch; ++b)
        for (size_t j = begin; j < end; ++j)
            for (size_t k = 0; k < depth; ++k) {
                ptrdiff_t at = place(s, k, j);
                float value = at < 0 ? 0 : job->input[b * s->c * s->h * s->w + (size_t)at];
                float *updates = job->into + j * s->n * depth + k;
                const float *delta = job->delta + b * s->n * pixels + j;
                for (size_t f = 0; f < s->n; ++f) updates[f * depth] += 0 + delta[f * pixels] * value;
            }
}

void local_weight_gradients(const float *input, const float *delta, size_t batch, const local_shape *s, float *updates) {
    job j = {s, batch, input, NULL, delta, updates};
    parallel_for(s->out_h * s->out_w, batch * s->n * s->c * s->size * s->size, add_local_weights, &j);
}

static void add_local_planes(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const job *job = context;
    const local_shape *s = job->s;
    size_t area = s->size * s->size, depth = s->c * area, pixels = s->out_h * s->out_w;
    for (size_t p = begin; p < end; ++p) {
        float *image = job->into + p / s->c * s->c * s->h * s->w;
        const float *delta = job->delta + p / s->c * s->n * pixels;
        for (size_t k = p % s->c * area; k < (p % s->c + 1) * area; ++k)
            for (size_t j = 0; j < pixels; ++j) {
                ptrdiff_t at = place(s, k, j);
                if (at < 0) continue;
                float sum = 0;
                for (size_t f = 0; f < s->n; ++f) sum += job->weights[(j * s->n + f) * depth + k] * delta[f * pixels + j];
                image[at] += sum;
            }
    }
}

void local_input_gradients(const float *weights, const float *delta, size_t batch, const local_shape *s, float *into) {
    job j = {s, batch, NULL, weights, delta, into};
    parallel_for(batch * s->c, s->out_h * s->out_w * s->n * s->size * s->size, add_local_planes, &j);
}

/* ---- transposed: the columns are of the delta, whose image is the output ----------------------------------------------------- */

/* Pixels, kernel elements and channels that are worked on at a time; each sum keeps its order */
enum { TILE = 16, LANES = 8, CHANNELS = 16 };

/* Kernel element k at an input pixel; 0 outside the output's image */
static float column(const local_shape *s, const float *delta, size_t k, size_t row, size_t x) {
    size_t area = s->size * s->size;
    size_t y = row * s->stride + k % area / s->size, z = x * s->stride + k % s->size;
    if (y < s->pad || y - s->pad >= s->out_h || z < s->pad || z - s->pad >= s->out_w) return 0;
    return delta[(k / area * s->out_h + y - s->pad) * s->out_w + z - s->pad];
}

/* Adds a row's products to the sums of the channels first..first+count and the kernel elements k..k+lanes. */
static void sum_row(const local_shape *s, const float *input, const float *delta, size_t row, size_t k, size_t lanes, size_t count,
                    float (*sums)[LANES]) {
    float values[TILE][LANES] = {{0}};
    for (size_t first = 0; first < s->w; first += TILE) {
        size_t pixels = s->w - first < TILE ? s->w - first : TILE;
        for (size_t i = 0; i < pixels; ++i)
            for (size_t lane = 0; lane < lanes; ++lane) values[i][lane] = column(s, delta, k + lane, row, first + i);
        for (size_t c = 0; c < count; ++c) {
            const float *x = input + c * s->h * s->w + row * s->w + first;
            for (size_t i = 0; i < pixels; ++i)
                for (size_t lane = 0; lane < LANES; ++lane) sums[c][lane] += x[i] * values[i][lane];
        }
    }
}

static size_t blocks_of(size_t n, size_t each) {
    return (n + each - 1) / each;
}

/* Items are some channels and some kernel elements. */
static void add_deconvolution_weights(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const job *job = context;
    const local_shape *s = job->s;
    size_t depth = s->n * s->size * s->size, blocks = blocks_of(depth, LANES);
    for (size_t item = begin; item < end; ++item) {
        size_t k = item % blocks * LANES, channel = item / blocks * CHANNELS;
        size_t lanes = depth - k < LANES ? depth - k : LANES, count = s->c - channel < CHANNELS ? s->c - channel : CHANNELS;
        for (size_t b = 0; b < job->batch; ++b) {
            float sums[CHANNELS][LANES] = {{0}};
            const float *input = job->input + (b * s->c + channel) * s->h * s->w;
            for (size_t row = 0; row < s->h; ++row)
                sum_row(s, input, job->delta + b * s->n * s->out_h * s->out_w, row, k, lanes, count, sums);
            for (size_t c = 0; c < count; ++c)
                for (size_t lane = 0; lane < lanes; ++lane) job->into[(channel + c) * depth + k + lane] += sums[c][lane];
        }
    }
}

void deconvolution_weight_gradients(const float *input, const float *delta, size_t batch, const local_shape *s, float *updates) {
    job j = {s, batch, input, NULL, delta, updates};
    size_t items = blocks_of(s->c, CHANNELS) * blocks_of(s->n * s->size * s->size, LANES);
    parallel_for(items, batch * s->h * s->w * CHANNELS * LANES, add_deconvolution_weights, &j);
}

/* Rows of the input's images, all channels of a tile */
static void add_deconvolution_rows(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const job *job = context;
    const local_shape *s = job->s;
    size_t depth = s->n * s->size * s->size, pixels = s->h * s->w;
    for (size_t item = begin; item < end; ++item) {
        size_t b = item / s->h, row = item % s->h;
        const float *delta = job->delta + b * s->n * s->out_h * s->out_w;
        for (size_t first = 0; first < s->w; first += TILE) {
            size_t count = s->w - first < TILE ? s->w - first : TILE;
            float values[TILE];
            for (size_t k = 0; k < depth; ++k) {
                for (size_t i = 0; i < count; ++i) values[i] = column(s, delta, k, row, first + i);
                for (size_t c = 0; c < s->c; ++c) {
                    float weight = job->weights[c * depth + k], *into = job->into + (b * s->c + c) * pixels + row * s->w + first;
                    for (size_t i = 0; i < count; ++i) into[i] += weight * values[i];
                }
            }
        }
    }
}

void deconvolution_input_gradients(const float *weights, const float *delta, size_t batch, const local_shape *s, float *into) {
    job j = {s, batch, NULL, weights, delta, into};
    parallel_for(batch * s->h, s->w * s->c * s->n * s->size * s->size, add_deconvolution_rows, &j);
}
