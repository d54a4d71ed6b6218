/* The delta of a convolution's input, see convolution_gradients_plain.c: the columns of a few channels at a time, through the tiles of
 * the forward pass, then added to the image while they are in the cache. */
#include <string.h>

#include "../internal.h"
#include "gradients.h"

enum { COLUMNS = 1 << 16, LINE = 16 }; /* floats of columns at a time; of 64 B */

typedef struct {
    const convolution_shape *s;
    size_t groups, channels_at_once;
    const float *transposed, *delta;
    input_delta how;
    float *into, *scratch;
} job;

/* One channel's columns (area, pixels), each value added to the pixel that it came from */
static void scatter(const convolution_shape *s, const float *columns, float *plane) {
    size_t area = s->size * s->size;
    for (size_t k = 0; k < area; ++k) {
        size_t dy = k / s->size * s->dilation, dx = k % s->size * s->dilation;
        inside across = columns_inside(s, dx);
        for (size_t row = 0; row < s->out_h; ++row) {
            size_t y = row * s->stride_y + dy, n = across.end - across.begin;
            if (y < s->pad_y || y - s->pad_y >= s->h || !n) continue;
            const float *from = columns + (k * s->out_h + row) * s->out_w + across.begin;
            float *to = plane + (y - s->pad_y) * s->w + across.begin * s->stride_x + dx - s->pad_x;
            if (s->stride_x == 1)
                for (size_t x = 0; x < n; ++x) to[x] += from[x];
            else
                for (size_t x = 0; x < n; ++x) to[x * s->stride_x] += from[x];
        }
    }
}

static size_t channels_at_once(const convolution_shape *s) {
    size_t each = s->size * s->size * convolution_pixels(s), most = each < COLUMNS ? COLUMNS / each : 1;
    size_t blocks = (s->c + most - 1) / most;
    return (s->c + blocks - 1) / blocks;
}

/* The columns of n channels as a convolution of one pixel over the delta */
static convolution_shape columns_shape(const convolution_shape *s, size_t n) {
    return (convolution_shape){.c = s->n,
                               .n = n * s->size * s->size,
                               .h = s->out_h,
                               .w = s->out_w,
                               .out_h = s->out_h,
                               .out_w = s->out_w,
                               .size = 1,
                               .stride_x = 1,
                               .stride_y = 1,
                               .dilation = 1,
                               .direct = 1};
}

/* The columns of the channels first..first+n of one image, where they belong */
static void lay_columns(const job *j, size_t image, size_t first, size_t n, const float *columns) {
    const convolution_shape *s = j->s;
    size_t plane = s->h * s->w, pixels = convolution_pixels(s), area = s->size * s->size;
    float *to = j->into + image * s->c * plane;
    if (writes_directly(s, j->how)) {
        for (size_t i = 0; i < n * pixels; ++i) to[first * pixels + i] += columns[i];
        return;
    }
    to += first * plane;
    if (overwrites(s, j->how)) memset(to, 0, n * plane * sizeof *to);
    for (size_t c = 0; c < n; ++c) scatter(s, columns + c * area * pixels, to + c * plane);
}

/* Units are (image, group, channels). */
static void spread_delta(void *context, size_t begin, size_t end, size_t thread) {
    const job *j = context;
    const convolution_shape *s = j->s;
    size_t at_once = j->channels_at_once, blocks = (s->c + at_once - 1) / at_once, area = s->size * s->size;
    size_t pixels = convolution_pixels(s);
    float *columns = j->scratch + thread * input_gradients_scratch(s), *scratch = columns + at_once * area * pixels;
    for (size_t unit = begin; unit < end; ++unit) {
        size_t image = unit / blocks, first = unit % blocks * at_once, n = s->c - first < at_once ? s->c - first : at_once;
        convolution_shape t = columns_shape(s, n);
        const float *weights = j->transposed + (image % j->groups * s->c + first) * area * s->n;
        const float *delta = j->delta + image * s->n * pixels;
        if (writes_directly(s, j->how) && overwrites(s, j->how)) {
            convolve(&t, 1, 1, delta, weights, j->into + image * s->c * s->h * s->w + first * pixels, scratch, 1);
            continue;
        }
        convolve(&t, 1, 1, delta, weights, columns, scratch, 1);
        lay_columns(j, image, first, n, columns);
    }
}

size_t input_gradients_scratch(const convolution_shape *s) {
    size_t n = channels_at_once(s);
    convolution_shape t = columns_shape(s, n);
    return (n * s->size * s->size * convolution_pixels(s) + convolve_scratch(&t) + LINE - 1) / LINE * LINE;
}

void input_gradients(const convolution_shape *s, size_t batch, size_t groups, const float *transposed, const float *delta,
                     input_delta how, float *into, float *scratch, size_t threads) {
    job j = {s, groups, channels_at_once(s), transposed, delta, how, into, scratch};
    size_t blocks = (s->c + j.channels_at_once - 1) / j.channels_at_once, depth = convolution_depth(s);
    parallel_for_on(threads, batch * groups * blocks, depth / blocks * convolution_pixels(s) * s->n, spread_delta, &j);
}

void transpose_weights(const convolution_shape *s, size_t groups, const float *weights, float *transposed) {
    size_t depth = convolution_depth(s);
    for (size_t g = 0; g < groups; ++g)
        for (size_t f = 0; f < s->n; ++f)
            for (size_t k = 0; k < depth; ++k) transposed[(g * depth + k) * s->n + f] = weights[(g * s->n + f) * depth + k];
}
