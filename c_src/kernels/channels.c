/* Layers that scale each pixel's channels (pjreddie/darknet src/blas.c l2normalize_cpu, src/normalization_layer.c;
 * AlexeyAB/darknet src/scale_channels_layer.c). */
#include <math.h>

#include "../internal.h"
#include "kernels.h"

void l2normalize_cpu(float *x, extent e) {
    for (size_t i = 0; i < e.batch * e.spatial; ++i) {
        float *pixel = x + i / e.spatial * e.c * e.spatial + i % e.spatial;
        float sum = 0;
        for (size_t k = 0; k < e.c; ++k) sum += pixel[k * e.spatial] * pixel[k * e.spatial];
        sum = sqrtf(sum);
        for (size_t k = 0; k < e.c; ++k) pixel[k * e.spatial] /= sum;
    }
}

typedef struct {
    const float *input, *values;
    extent e;
    const normalization_window *window;
    float *norms, *output;
} normalization_job;

/* norms += factor * x^2, the square rounded first */
static void add_squares(float *norms, const float *x, size_t n, float factor) {
    for (size_t i = 0; i < n; ++i) norms[i] += factor * (x[i] * x[i]);
}

/* The first channel sums one neighbour too few for an odd size, and every later one inherits that: the forks' own. */
static void normalize_images(void *context, size_t begin, size_t end, size_t thread) {
    const normalization_job *j = context;
    size_t c = j->e.c, spatial = j->e.spatial, size = j->window->size;
    float *norms = j->norms + thread * spatial, alpha = j->window->alpha;
    double power = (double)-j->window->beta;
    for (size_t b = begin; b < end; ++b) {
        const float *x = j->input + b * c * spatial, *values = j->values + b * c * spatial;
        float *out = j->output + b * c * spatial;
        for (size_t i = 0; i < spatial; ++i) norms[i] = j->window->kappa;
        for (size_t k = 0; k < size / 2 && k < c; ++k) add_squares(norms, x + k * spatial, spatial, alpha);
        for (size_t k = 0; k < c; ++k) {
            size_t before = (size - 1) / 2 + 1;
            if (k && k >= before) add_squares(norms, x + (k - before) * spatial, spatial, -alpha);
            if (k && k + size / 2 < c) add_squares(norms, x + (k + size / 2) * spatial, spatial, alpha);
            for (size_t i = 0; i < spatial; ++i)
                out[k * spatial + i] = (float)pow((double)norms[i], power) * values[k * spatial + i];
        }
    }
}

void normalize_channels_cpu(const float *input, const float *values, extent e, const normalization_window *window, size_t threads,
                            float *norms, float *output) {
    normalization_job j = {input, values, e, window, norms, output};
    parallel_for_on(threads, e.batch, e.c * e.spatial * 64, normalize_images, &j);
}

void scale_channels_cpu(const float *x, const float *scales, extent e, int wh, float *output) {
    for (size_t p = 0; p < e.batch * e.c; ++p) {
        const float *plane = x + p * e.spatial, *each = scales + p / e.c * e.spatial;
        float *out = output + p * e.spatial;
        for (size_t i = 0; i < e.spatial; ++i) out[i] = (wh ? each[i] : scales[p]) * plane[i];
    }
}
