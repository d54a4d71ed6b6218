/* Gradients of a convolution (pjreddie/darknet src/convolutional_layer.c backward_convolutional_layer).
 *
 *   updates[f][k] += sum over pixels j of delta[f][j] * column[k][j]      one float sum an image, then added (gemm_nt)
 *   columns[k][j]  = sum over filters f of weights[f][k] * delta[f][j]    (gemm_tn), each added to the pixel that it came from
 *                                                                         (col2im: k = channel, kernel row, kernel column in turn)
 *
 * Both products go through the tiles of the forward pass; *_plain is the specification. */
#include <string.h>

#include "../internal.h"
#include "variants.h"

enum {
    STRIPS = 12,
    DEPTH = 320,
    COLUMNS = 1 << 18,
    LINE = 16
}; /* strips, products and columns' floats at a time; floats of 64 B */

typedef struct {
    const convolution_shape *s;
    const variant *variant;
    size_t batch, groups, filters_at_once, channels_at_once;
    const float *input, *weights, *delta;
    input_delta how;
    float *updates, *input_delta, *scratch;
    size_t scratch_step;
} job;

static size_t depth_of(const convolution_shape *s) {
    return s->c * s->size * s->size;
}

static size_t pixels_of(const convolution_shape *s) {
    return s->out_h * s->out_w;
}

/* Where kernel element k lies at output pixel j of an image; -1 in the padding. */
static ptrdiff_t place(const convolution_shape *s, size_t k, size_t j) {
    size_t area = s->size * s->size;
    if (s->direct) return (ptrdiff_t)(k * pixels_of(s) + j);
    size_t y = j / s->out_w * s->stride_y + k % area / s->size * s->dilation;
    size_t x = j % s->out_w * s->stride_x + k % s->size * s->dilation;
    if (y < s->pad_y || y - s->pad_y >= s->h || x < s->pad_x || x - s->pad_x >= s->w) return -1;
    return (ptrdiff_t)((k / area * s->h + y - s->pad_y) * s->w + x - s->pad_x);
}

void weight_gradients_plain(const convolution_shape *s, size_t batch, size_t groups, const float *input, const float *delta,
                            float *updates) {
    size_t depth = depth_of(s), pixels = pixels_of(s);
    for (size_t i = 0; i < batch * groups; ++i)
        for (size_t f = 0; f < s->n; ++f)
            for (size_t k = 0; k < depth; ++k) {
                const float *image = input + i * s->c * s->h * s->w, *d = delta + (i * s->n + f) * pixels;
                float sum = 0;
                for (size_t j = 0; j < pixels; ++j) sum += d[j] * (place(s, k, j) < 0 ? 0 : image[place(s, k, j)]);
                updates[(i % groups * s->n + f) * depth + k] += sum;
            }
}

/* Whether the product of the weights' transpose is the delta itself. */
static int writes_directly(const convolution_shape *s, input_delta how) {
    return how == INPUT_DELTA_OVERWRITTEN_BY_1X1 && s->direct;
}

static int overwrites(const convolution_shape *s, input_delta how) {
    return how == INPUT_DELTA_OVERWRITTEN || (how == INPUT_DELTA_OVERWRITTEN_BY_1X1 && s->size == 1);
}

void input_gradients_plain(const convolution_shape *s, size_t batch, size_t groups, const float *weights, const float *delta,
                           input_delta how, float *into) {
    size_t depth = depth_of(s), pixels = pixels_of(s), image = s->c * s->h * s->w;
    convolution_shape read = *s;
    if (!writes_directly(s, how)) read.direct = 0;
    for (size_t i = 0; i < batch * groups; ++i) {
        float *to = into + i * image;
        if (overwrites(s, how) && !read.direct) memset(to, 0, image * sizeof *to);
        for (size_t k = 0; k < depth; ++k)
            for (size_t j = 0; j < pixels; ++j) {
                float sum = 0;
                for (size_t f = 0; f < s->n; ++f)
                    sum += weights[(i % groups * s->n + f) * depth + k] * delta[(i * s->n + f) * pixels + j];
                ptrdiff_t at = place(&read, k, j);
                if (at >= 0) to[at] = read.direct ? sum : to[at] + sum;
            }
    }
}

/* ---- weights ---------------------------------------------------------------------------------------------------------------- */

/* The product of delta (filters, pixels) and the columns' transpose, some of its columns, as a convolution of one pixel. */
static convolution_shape product_shape(const convolution_shape *s, size_t columns) {
    return (convolution_shape){.c = pixels_of(s),
                               .n = s->n,
                               .h = 1,
                               .w = columns,
                               .out_h = 1,
                               .out_w = columns,
                               .size = 1,
                               .stride_x = 1,
                               .stride_y = 1,
                               .dilation = 1,
                               .direct = 1};
}

/* One kernel element at the pixels begin..end, which lie `step` floats apart in a strip. */
static void pack_element(const convolution_shape *s, const float *image, size_t k, size_t begin, size_t end, size_t step,
                         float *to) {
    size_t area = s->size * s->size, dy = k % area / s->size * s->dilation, dx = k % s->size * s->dilation;
    const float *plane = image + k / area * s->h * s->w;
    size_t row = begin / s->out_w, column = begin % s->out_w;
    for (size_t j = begin; j < end; ++row, column = 0) {
        size_t stop = j + (s->out_w - column) < end ? j + (s->out_w - column) : end, y = row * s->stride_y + dy;
        int inside = y >= s->pad_y && y - s->pad_y < s->h;
        for (; j < stop; ++j, ++column, to += step) {
            size_t x = column * s->stride_x + dx;
            *to = inside && x >= s->pad_x && x - s->pad_x < s->w ? plane[(y - s->pad_y) * s->w + x - s->pad_x] : 0;
        }
    }
}

/* Strips of the columns first..first+count: strip[pixel][column] for the pixels begin..end */
static void pack_columns(const convolution_shape *s, const float *image, size_t first, size_t count, const convolution_block *b,
                         size_t strip, float *strips) {
    size_t depth = b->end - b->begin;
    for (size_t at = 0; at < count; at += strip)
        for (size_t lane = 0, width = width_of_strip(strip, count - at); lane < width; ++lane) {
            float *to = strips + at * depth + lane;
            if (at + lane >= count)
                for (size_t j = 0; j < depth; ++j) to[j * width] = 0;
            else if (s->direct)
                for (size_t j = 0; j < depth; ++j) to[j * width] = image[(first + at + lane) * pixels_of(s) + b->begin + j];
            else
                pack_element(s, image, first + at + lane, b->begin, b->end, width, to);
        }
}

static size_t columns_at_once(const job *j) {
    return STRIPS * j->variant->strip;
}

/* One image's product for the columns first..first+count and the filters f..f+n of a group, added to the updates */
static void add_product(const job *j, size_t image, size_t f, size_t n, size_t first, size_t count, float *scratch) {
    const convolution_shape *s = j->s;
    convolution_shape product = product_shape(s, count);
    size_t pixels = pixels_of(s), depth = depth_of(s);
    float *strips = scratch, *sums = scratch + columns_at_once(j) * DEPTH;
    convolution_block b = {.s = &product, .first_filter = 0, .end_filter = n};
    const float *delta = j->delta + (image * s->n + f) * pixels;
    for (b.begin = 0; b.begin < pixels; b.begin = b.end) {
        b.end = b.begin + DEPTH < pixels ? b.begin + DEPTH : pixels;
        pack_columns(s, j->input + image * s->c * s->h * s->w, first, count, &b, j->variant->strip, strips);
        j->variant->multiply(&b, delta, strips, 0, count, sums);
    }
    float *updates = j->updates + (image % j->groups * s->n + f) * depth + first;
    for (size_t i = 0; i < n; ++i)
        for (size_t k = 0; k < count; ++k) updates[i * depth + k] += sums[i * count + k];
}

/* Units are (group, columns, filters); each takes all images in turn. */
static void add_weight_gradients(void *context, size_t begin, size_t end, size_t thread) {
    const job *j = context;
    size_t depth = depth_of(j->s), at_once = columns_at_once(j), column_blocks = (depth + at_once - 1) / at_once;
    size_t filter_blocks = (j->s->n + j->filters_at_once - 1) / j->filters_at_once;
    for (size_t unit = begin; unit < end; ++unit) {
        size_t group = unit / (column_blocks * filter_blocks), first = unit / filter_blocks % column_blocks * at_once;
        size_t f = unit % filter_blocks * j->filters_at_once;
        size_t count = depth - first < at_once ? depth - first : at_once;
        size_t n = j->s->n - f < j->filters_at_once ? j->s->n - f : j->filters_at_once;
        for (size_t b = 0; b < j->batch; ++b)
            add_product(j, b * j->groups + group, f, n, first, count, j->scratch + thread * j->scratch_step);
    }
}

/* All filters together where there are units enough for the threads without; else some, in whole tiles */
static size_t filters_at_once(const convolution_shape *s, size_t groups, size_t threads, size_t columns) {
    enum { ROWS = 24 };
    size_t blocks = groups * ((depth_of(s) + columns - 1) / columns);
    if (blocks >= 4 * threads || threads == 1 || s->n <= ROWS) return s->n;
    size_t each = (s->n + 4 * threads - 1) / (4 * threads);
    return (each + ROWS - 1) / ROWS * ROWS;
}

size_t weight_gradients_scratch(const convolution_shape *s) {
    size_t columns = STRIPS * chosen_variant()->strip;
    return (columns * DEPTH + s->n * columns + LINE - 1) / LINE * LINE;
}

void weight_gradients(const convolution_shape *s, size_t batch, size_t groups, const float *input, const float *delta,
                      float *updates, float *scratch, size_t threads) {
    job j = {.s = s, .variant = chosen_variant(), .batch = batch, .groups = groups, .input = input, .delta = delta};
    j.updates = updates, j.scratch = scratch, j.scratch_step = weight_gradients_scratch(s);
    j.filters_at_once = filters_at_once(s, groups, threads, columns_at_once(&j));
    size_t depth = depth_of(s), at_once = columns_at_once(&j), units = groups * ((depth + at_once - 1) / at_once);
    units *= (s->n + j.filters_at_once - 1) / j.filters_at_once;
    parallel_for_on(threads, units, batch * pixels_of(s) * depth * s->n * groups / units, add_weight_gradients, &j);
}

/* ---- input ------------------------------------------------------------------------------------------------------------------ */

/* One channel's columns (area, pixels), each value added to the pixel that it came from */
static void scatter(const convolution_shape *s, const float *columns, float *plane) {
    size_t area = s->size * s->size;
    for (size_t k = 0; k < area; ++k) {
        size_t dy = k / s->size * s->dilation, dx = k % s->size * s->dilation;
        /* output columns low..high lie within the image */
        size_t low = dx >= s->pad_x ? 0 : (s->pad_x - dx + s->stride_x - 1) / s->stride_x;
        size_t high = s->w + s->pad_x > dx ? (s->w + s->pad_x - dx - 1) / s->stride_x + 1 : 0;
        if (high > s->out_w) high = s->out_w;
        for (size_t row = 0; row < s->out_h; ++row) {
            size_t y = row * s->stride_y + dy;
            if (y < s->pad_y || y - s->pad_y >= s->h || low >= high) continue;
            const float *from = columns + (k * s->out_h + row) * s->out_w + low;
            float *to = plane + (y - s->pad_y) * s->w + low * s->stride_x + dx - s->pad_x;
            if (s->stride_x == 1)
                for (size_t x = 0; x < high - low; ++x) to[x] += from[x];
            else
                for (size_t x = 0; x < high - low; ++x) to[x * s->stride_x] += from[x];
        }
    }
}

static size_t channels_at_once(const convolution_shape *s) {
    size_t each = s->size * s->size * pixels_of(s), most = each < COLUMNS ? COLUMNS / each : 1;
    return most < s->c ? most : s->c;
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

/* Units are (image, group, channels). */
static void spread_delta(void *context, size_t begin, size_t end, size_t thread) {
    const job *j = context;
    const convolution_shape *s = j->s;
    size_t at_once = j->channels_at_once, blocks = (s->c + at_once - 1) / at_once, area = s->size * s->size, pixels = pixels_of(s);
    float *columns = j->scratch + thread * j->scratch_step, *scratch = columns + at_once * area * pixels;
    for (size_t unit = begin; unit < end; ++unit) {
        size_t image = unit / blocks, first = unit % blocks * at_once, n = s->c - first < at_once ? s->c - first : at_once;
        convolution_shape t = columns_shape(s, n);
        const float *weights = j->weights + (image % j->groups * s->c + first) * area * s->n;
        const float *delta = j->delta + image * s->n * pixels;
        float *to = j->input_delta + (image * s->c + first) * s->h * s->w;
        if (writes_directly(s, j->how)) {
            convolve(&t, 1, 1, delta, weights, j->input_delta + image * s->c * s->h * s->w + first * pixels, scratch, 1);
            continue;
        }
        convolve(&t, 1, 1, delta, weights, columns, scratch, 1);
        if (overwrites(s, j->how)) memset(to, 0, n * s->h * s->w * sizeof *to);
        for (size_t c = 0; c < n; ++c) scatter(s, columns + c * area * pixels, to + c * s->h * s->w);
    }
}

size_t input_gradients_scratch(const convolution_shape *s) {
    size_t n = channels_at_once(s);
    convolution_shape t = columns_shape(s, n);
    return (n * s->size * s->size * pixels_of(s) + convolve_scratch(&t) + LINE - 1) / LINE * LINE;
}

void input_gradients(const convolution_shape *s, size_t batch, size_t groups, const float *transposed, const float *delta,
                     input_delta how, float *into, float *scratch, size_t threads) {
    job j = {.s = s, .variant = chosen_variant(), .batch = batch, .groups = groups, .weights = transposed, .delta = delta};
    j.how = how, j.input_delta = into, j.scratch = scratch, j.scratch_step = input_gradients_scratch(s);
    j.channels_at_once = channels_at_once(s);
    size_t blocks = (s->c + j.channels_at_once - 1) / j.channels_at_once;
    parallel_for_on(threads, batch * groups * blocks, depth_of(s) / blocks * pixels_of(s) * s->n, spread_delta, &j);
}

void transpose_weights(const convolution_shape *s, size_t groups, const float *weights, float *transposed) {
    size_t depth = depth_of(s);
    for (size_t g = 0; g < groups; ++g)
        for (size_t f = 0; f < s->n; ++f)
            for (size_t k = 0; k < depth; ++k) transposed[(g * depth + k) * s->n + f] = weights[(g * s->n + f) * depth + k];
}
