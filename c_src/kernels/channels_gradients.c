/* Derivatives of the layers in channels.c. The forks' programs compute those of scaling alone (AlexeyAB/darknet
 * src/scale_channels_layer.c, src/sam_layer.c); of both normalisations they take something simpler, see layer_gradient. */
#include <math.h>

#include "../internal.h"
#include "kernels.h"

void l2normalize_gradients(const float *x, const float *delta, extent e, float *into) {
    for (size_t i = 0; i < e.batch * e.spatial; ++i) {
        size_t first = i / e.spatial * e.c * e.spatial + i % e.spatial;
        double squares = 0, common = 0;
        for (size_t k = first; k < first + e.c * e.spatial; k += e.spatial) {
            squares += (double)x[k] * x[k];
            common += (double)x[k] * delta[k];
        }
        for (size_t k = first; k < first + e.c * e.spatial; k += e.spatial)
            into[k] += (float)((delta[k] - x[k] * common / squares) / sqrt(squares));
    }
}

typedef struct {
    const float *input, *delta;
    extent e;
    const normalization_window *window;
    float *scratch, *into;
} job;

/* How often the square of channel m stands in the norm of channel k. The forks' windows begin with one neighbour too few, take away
 * later what they never added, and so may count -1. */
static int times_counted(const normalization_window *window, size_t m, size_t k) {
    size_t half = window->size / 2, before = (window->size - 1) / 2 + 1;
    int entered = m < half || (m > half && m - half <= k);
    return entered - (m + before <= k);
}

/* One pixel, whose channels lie `spatial` floats apart */
static void differentiate_pixel(const job *j, size_t first, float *powers, float *terms) {
    size_t c = j->e.c, spatial = j->e.spatial, half = j->window->size / 2, before = (j->window->size - 1) / 2 + 1;
    const float *x = j->input + first, *delta = j->delta + first;
    double beta = j->window->beta, alpha = j->window->alpha;
    for (size_t k = 0; k < c; ++k) {
        double norm = j->window->kappa;
        for (size_t m = 0; m < c; ++m) norm += alpha * times_counted(j->window, m, k) * ((double)x[m * spatial] * x[m * spatial]);
        powers[k] = (float)pow(norm, -beta);
        terms[k] = (float)((double)delta[k * spatial] * x[k * spatial] * powers[k] / norm);
    }
    for (size_t m = 0; m < c; ++m) {
        double sum = 0;
        size_t end = m == half || m + before > c ? c : m + before;
        for (size_t k = m > half ? m - half : 0; k < end; ++k) sum += times_counted(j->window, m, k) * (double)terms[k];
        j->into[first + m * spatial] = (float)((double)delta[m * spatial] * powers[m] - 2 * alpha * beta * x[m * spatial] * sum);
    }
}

static void differentiate_pixels(void *context, size_t begin, size_t end, size_t thread) {
    const job *j = context;
    float *powers = j->scratch + thread * 2 * j->e.c;
    for (size_t i = begin; i < end; ++i)
        differentiate_pixel(j, i / j->e.spatial * j->e.c * j->e.spatial + i % j->e.spatial, powers, powers + j->e.c);
}

void normalize_channels_gradients(const float *input, const float *delta, extent e, const normalization_window *window,
                                  size_t threads, float *scratch, float *into) {
    job j = {input, delta, e, window, scratch, into};
    parallel_for_on(threads, e.batch * e.spatial, e.c * e.c, differentiate_pixels, &j);
}

void scale_channels_gradients(const float *x, const float *scales, const float *delta, extent e, int wh, int added,
                              float *scales_delta, float *x_delta) {
    for (size_t p = 0; p < e.batch * e.c; ++p) {
        for (size_t i = 0; i < e.spatial; ++i) { /* both in one loop: they may be the same array */
            size_t scale = wh ? p / e.c * e.spatial + i : p, at = p * e.spatial + i;
            float own = scales[scale] * delta[at];
            if (scales_delta) scales_delta[scale] += delta[at] * x[at];
            if (x_delta) x_delta[at] = added ? x_delta[at] + own : own;
        }
    }
}
