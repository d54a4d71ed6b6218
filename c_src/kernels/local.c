/* Convolutions with weights of each pixel, and the transposed convolution (pjreddie/darknet src/local_layer.c,
 * src/deconvolutional_layer.c with src/gemm.c and src/col2im.c). */
#include "../internal.h"
#include "kernels.h"

typedef struct {
    const local_shape *s;
    const float *input, *weights, *biases;
    float *output;
} job;

/* The image's value under kernel element k at output pixel j; 0 outside. */
static float pixel(const local_shape *s, const float *image, size_t k, size_t j) {
    size_t area = s->size * s->size;
    size_t y = j / s->out_w * s->stride + k % area / s->size; /* padding included */
    size_t x = j % s->out_w * s->stride + k % s->size;
    if (y < s->pad || y - s->pad >= s->h || x < s->pad || x - s->pad >= s->w) return 0;
    return image[(k / area * s->h + y - s->pad) * s->w + x - s->pad];
}

static void local_pixels(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const job *job = context;
    const local_shape *s = job->s;
    size_t depth = s->c * s->size * s->size, pixels = s->out_h * s->out_w;
    for (size_t item = begin; item < end; ++item) {
        size_t b = item / pixels, j = item % pixels;
        const float *image = job->input + b * s->c * s->h * s->w;
        float *out = job->output + b * s->n * pixels + j;
        for (size_t f = 0; f < s->n; ++f) out[f * pixels] = job->biases[f * pixels + j];
        for (size_t k = 0; k < depth; ++k) {
            const float *weights = job->weights + j * s->n * depth + k;
            float value = pixel(s, image, k, j);
            for (size_t f = 0; f < s->n; ++f) out[f * pixels] += weights[f * depth] * value;
        }
    }
}

void local_cpu(const float *input, size_t batch, const local_shape *s, const float *weights, const float *biases, float *output) {
    job j = {s, input, weights, biases, output};
    parallel_for(batch * s->out_h * s->out_w, s->n * s->c * s->size * s->size, local_pixels, &j);
}

/* TILE pixels of an input row at a time; each sum over the channels keeps its order. */
enum { TILE = 16 };

/* Adds one kernel element's product with a row of the input to the plane of one filter. */
static void lay_row(const local_shape *s, const float *row, const float *weights, size_t step, size_t dx, float *out) {
    for (size_t first = 0; first < s->w; first += TILE) {
        size_t count = s->w - first < TILE ? s->w - first : TILE;
        float sums[TILE] = {0};
        for (size_t k = 0; k < s->c; ++k)
            for (size_t i = 0; i < count; ++i) sums[i] += weights[k * step] * row[k * s->h * s->w + first + i];
        for (size_t i = 0; i < count; ++i) {
            size_t x = (first + i) * s->stride + dx;
            if (x >= s->pad && x - s->pad < s->out_w) out[x - s->pad] += sums[i];
        }
    }
}

static void deconvolve_planes(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const job *j = context;
    const local_shape *s = j->s;
    size_t area = s->size * s->size, pixels = s->out_h * s->out_w;
    for (size_t p = begin; p < end; ++p) {
        const float *image = j->input + p / s->n * s->c * s->h * s->w;
        float *out = j->output + p * pixels;
        for (size_t i = 0; i < pixels; ++i) out[i] = 0;
        for (size_t element = 0; element < area; ++element) {
            const float *weights = j->weights + p % s->n * area + element;
            for (size_t row = 0; row < s->h; ++row) {
                size_t y = row * s->stride + element / s->size;
                if (y < s->pad || y - s->pad >= s->out_h) continue;
                lay_row(s, image + row * s->w, weights, s->n * area, element % s->size, out + (y - s->pad) * s->out_w);
            }
        }
    }
}

void deconvolve(const float *input, size_t batch, const local_shape *s, const float *weights, float *output) {
    job j = {s, input, weights, NULL, output};
    parallel_for(batch * s->n, s->c * s->size * s->size * s->h * s->w, deconvolve_planes, &j);
}
