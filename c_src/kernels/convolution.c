/* The matrix product of a convolution without its matrix.
 *
 * For each output the sum runs over k = (channel, kernel row, kernel column) from 0 upwards, product and sum rounded to float
 * apart: the order of im2col followed by gemm_nn (pjreddie/darknet src/im2col.c, src/gemm.c). Outputs are independent, so they are
 * computed a tile at a time: TILE_J pixels of the matrix are copied to a panel that stays in the cache, and TILE_I filters run over
 * it together. convolve_plain is the specification. */
#include <string.h>

#include "../internal.h"
#include "kernels.h"

enum { TILE_I = 4, TILE_J = 16, PANEL = 2 * TILE_J };

/* The image's value under kernel element k at output pixel (row, column); 0 in the padding. */
static float pixel(const convolution_shape *s, const float *image, size_t k, size_t row, size_t column) {
    size_t area = s->size * s->size;
    size_t y = row * s->stride_y + k % area / s->size * s->dilation; /* padding included */
    size_t x = column * s->stride_x + k % s->size * s->dilation;
    if (y < s->pad_y || y - s->pad_y >= s->h || x < s->pad_x || x - s->pad_x >= s->w) return 0;
    return image[(k / area * s->h + y - s->pad_y) * s->w + x - s->pad_x];
}

void convolve_plain(const convolution_shape *s, size_t images, size_t groups, const float *input, const float *weights,
                    float *output) {
    size_t depth = s->c * s->size * s->size, pixels = s->out_h * s->out_w;
    for (size_t i = 0; i < images; ++i) {
        const float *image = input + i * s->c * s->h * s->w;
        for (size_t f = 0; f < s->n; ++f) {
            const float *a = weights + (i % groups * s->n + f) * depth;
            for (size_t j = 0; j < pixels; ++j) {
                float sum = 0;
                for (size_t k = 0; k < depth; ++k)
                    sum += a[k] * (s->direct ? image[k * pixels + j] : pixel(s, image, k, j / s->out_w, j % s->out_w));
                output[(i * s->n + f) * pixels + j] = sum;
            }
        }
    }
}

/* count pixels of one row of the matrix, from output pixel (row, column) on along that row of the picture */
static void pack_run(const convolution_shape *s, const float *line, ptrdiff_t x, size_t count, float *to) {
    ptrdiff_t step = (ptrdiff_t)s->stride_x, width = (ptrdiff_t)s->w;
    if (!line) {
        memset(to, 0, count * sizeof *to);
        return;
    }
    if (step == 1 && x >= 0 && x + (ptrdiff_t)count <= width) {
        memcpy(to, line + x, count * sizeof *to);
        return;
    }
    for (size_t i = 0; i < count; ++i, x += step) to[i] = x >= 0 && x < width ? line[x] : 0;
}

/* panel[k][0..count) = the matrix's pixels first..first+count; the rest of the panel's width is 0 */
static void pack(const convolution_shape *s, const float *image, size_t first, size_t count, float *panel) {
    size_t area = s->size * s->size, depth = s->c * area, pixels = s->out_h * s->out_w;
    if (count < PANEL) memset(panel, 0, depth * PANEL * sizeof *panel);
    for (size_t k = 0; k < depth; ++k) {
        float *to = panel + k * PANEL;
        if (s->direct) {
            memcpy(to, image + k * pixels + first, count * sizeof *to);
            continue;
        }
        const float *plane = image + k / area * s->h * s->w;
        ptrdiff_t dy = (ptrdiff_t)(k % area / s->size * s->dilation) - (ptrdiff_t)s->pad_y;
        ptrdiff_t dx = (ptrdiff_t)(k % s->size * s->dilation) - (ptrdiff_t)s->pad_x;
        for (size_t done = 0; done < count;) {
            size_t row = (first + done) / s->out_w, column = (first + done) % s->out_w;
            size_t run = s->out_w - column < count - done ? s->out_w - column : count - done;
            ptrdiff_t y = (ptrdiff_t)(row * s->stride_y) + dy;
            const float *line = y >= 0 && y < (ptrdiff_t)s->h ? plane + y * (ptrdiff_t)s->w : NULL;
            pack_run(s, line, (ptrdiff_t)(column * s->stride_x) + dx, run, to + done);
            done += run;
        }
    }
}

/* rows x TILE_J sums over the whole depth, held in registers */
static inline void tile(size_t rows, size_t depth, const float *const *a, const float *panel, float sums[TILE_I][TILE_J]) {
    for (size_t i = 0; i < rows; ++i)
        for (size_t j = 0; j < TILE_J; ++j) sums[i][j] = 0;
    for (size_t k = 0; k < depth; ++k)
        for (size_t i = 0; i < rows; ++i)
            for (size_t j = 0; j < TILE_J; ++j) sums[i][j] += a[i][k] * panel[k * PANEL + j];
}

static void multiply(const convolution_shape *s, const float *weights, const float *panel, size_t count, float *output) {
    size_t depth = s->c * s->size * s->size, pixels = s->out_h * s->out_w;
    for (size_t f = 0; f < s->n; f += TILE_I) {
        size_t rows = s->n - f < TILE_I ? s->n - f : TILE_I;
        const float *a[TILE_I];
        for (size_t i = 0; i < TILE_I; ++i) a[i] = weights + (f + (i < rows ? i : 0)) * depth;
        for (size_t j = 0; j < count; j += TILE_J) {
            size_t columns = count - j < TILE_J ? count - j : TILE_J;
            float sums[TILE_I][TILE_J];
            if (rows == 1)
                tile(1, depth, a, panel + j, sums);
            else
                tile(TILE_I, depth, a, panel + j, sums);
            for (size_t i = 0; i < rows; ++i) memcpy(output + (f + i) * pixels + j, sums[i], columns * sizeof(float));
        }
    }
}

typedef struct {
    const convolution_shape *s;
    size_t groups;
    const float *input, *weights;
    float *output, *scratch;
} job;

size_t convolve_scratch(const convolution_shape *s) {
    return s->c * s->size * s->size * PANEL;
}

static void convolve_panels(void *context, size_t begin, size_t end, size_t thread) {
    const job *j = context;
    const convolution_shape *s = j->s;
    size_t depth = s->c * s->size * s->size, pixels = s->out_h * s->out_w, panels = (pixels + PANEL - 1) / PANEL;
    float *panel = j->scratch + thread * convolve_scratch(s);
    for (size_t item = begin; item < end; ++item) {
        size_t image = item / panels, first = item % panels * PANEL;
        size_t count = pixels - first < PANEL ? pixels - first : PANEL;
        pack(s, j->input + image * s->c * s->h * s->w, first, count, panel);
        multiply(s, j->weights + image % j->groups * s->n * depth, panel, count, j->output + image * s->n * pixels + first);
    }
}

void convolve(const convolution_shape *s, size_t images, size_t groups, const float *input, const float *weights, float *output,
              float *scratch, size_t threads) {
    job j = {s, groups, input, weights, output, scratch};
    size_t panels = (s->out_h * s->out_w + PANEL - 1) / PANEL;
    parallel_for_on(threads, images * panels, s->n * s->c * s->size * s->size * PANEL, convolve_panels, &j);
}
