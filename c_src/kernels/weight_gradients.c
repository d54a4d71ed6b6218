/* Gradients of a convolution's weights, see convolution_gradients_plain.c.
 *
 * The product runs over the pixels of an image: the matrix's rows, copied as they are, times the delta's transpose, which is packed
 * into strips, so that the tiles of the forward pass hold sums of some kernel elements over some filters. Each sum keeps its order. */
#include <string.h>

#include "../internal.h"
#include "gradients.h"
#include "variants.h"

enum {
    ROWS = 192,
    TILE = 12,
    FILTERS = 192,
    PIXELS = 256,
    LINE = 16
}; /* at a time: kernel elements, in whole tiles, filters, pixels; floats of 64 B */

typedef struct {
    const convolution_shape *s;
    const variant *variant;
    size_t batch, groups, row_blocks, filter_blocks;
    const float *input, *delta;
    float *updates, *scratch;
} job;

/* What a thread works with. A row of columns begins a line later where its sums go on: begin > 0 says so. */
typedef struct {
    float *columns, *transposed, *strips; /* (ROWS, LINE + PIXELS), (PIXELS, filters), packed */
    float *sums, *totals;                 /* (ROWS, filters): of one image, of all */
} room;

/* Kernel elements and filters of one group that a unit of work takes, and pixels of the moment */
typedef struct {
    size_t group, row, rows, filter, filters, begin, end;
} part;

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

static size_t filters_at_once(const convolution_shape *s) {
    size_t blocks = (s->n + FILTERS - 1) / FILTERS;
    return (s->n + blocks - 1) / blocks;
}

size_t weight_gradients_scratch(const convolution_shape *s) {
    size_t width = chosen_variant()->strip, filters = filters_at_once(s), whole = (filters + width - 1) / width * width;
    size_t padded = is_depthwise_gradient(s) ? depthwise_gradient_scratch(s) : 0;
    size_t floats = ROWS * (LINE + PIXELS) + PIXELS * (filters + whole) + 2 * ROWS * filters;
    return (larger(floats, padded) + LINE - 1) / LINE * LINE;
}

static room room_of(const job *j, size_t thread) {
    size_t width = j->variant->strip, filters = filters_at_once(j->s), whole = (filters + width - 1) / width * width;
    room r = {.columns = j->scratch + thread * weight_gradients_scratch(j->s)};
    r.strips = r.columns + ROWS * (LINE + PIXELS);
    r.transposed = r.strips + PIXELS * whole;
    r.sums = r.transposed + PIXELS * filters;
    r.totals = r.sums + ROWS * filters;
    return r;
}

static void copy_strided(const float *from, size_t stride, size_t n, float *to) {
    if (stride == 1)
        memcpy(to, from, n * sizeof *to);
    else if (stride == 2)
        for (size_t i = 0; i < n; ++i) to[i] = from[2 * i];
    else
        for (size_t i = 0; i < n; ++i) to[i] = from[stride * i];
}

/* The matrix's row of kernel element k at the pixels begin..end */
static void copy_row(const convolution_shape *s, const float *image, size_t k, size_t begin, size_t end, float *to) {
    size_t area = s->size * s->size, dy = k % area / s->size * s->dilation, dx = k % s->size * s->dilation;
    if (s->direct) {
        memcpy(to, image + k * convolution_pixels(s) + begin, (end - begin) * sizeof *to);
        return;
    }
    const float *plane = image + k / area * s->h * s->w;
    inside columns = columns_inside(s, dx);
    for (size_t j = begin, row = begin / s->out_w; j < end; ++row) {
        size_t first = j - row * s->out_w, stop = smaller(s->out_w, first + end - j), y = row * s->stride_y + dy;
        int outside = y < s->pad_y || y - s->pad_y >= s->h;
        size_t low = outside || columns.begin > stop ? stop : columns.begin > first ? columns.begin : first;
        size_t high = columns.end < low ? low : smaller(columns.end, stop);
        for (size_t x = first; x < low; ++x) *to++ = 0;
        if (low < high)
            copy_strided(plane + (y - s->pad_y) * s->w + low * s->stride_x + dx - s->pad_x, s->stride_x, high - low, to);
        to += high - low;
        for (size_t x = high; x < stop; ++x) *to++ = 0;
        j += stop - first;
    }
}

/* to[j][f] = from[f][j], a few rows side by side; steps from one row to the next */
static void transpose(const float *from, size_t from_step, size_t rows, size_t columns, float *to, size_t to_step) {
    enum { SIDE = 8 };
    size_t f = 0;
    for (; f + SIDE <= rows; f += SIDE)
        for (size_t j = 0; j < columns; ++j)
            for (size_t i = 0; i < SIDE; ++i) to[j * to_step + f + i] = from[(f + i) * from_step + j];
    for (; f < rows; ++f)
        for (size_t j = 0; j < columns; ++j) to[j * to_step + f] = from[f * from_step + j];
}

/* The sums of one image over the pixels begin..end */
static void multiply_pixels(const job *j, const part *p, size_t image, const room *r) {
    const convolution_shape *s = j->s;
    size_t pixels = convolution_pixels(s), count = p->end - p->begin, start = p->begin ? LINE : 0;
    for (size_t i = 0; i < p->rows; ++i)
        copy_row(s, j->input + image * s->c * s->h * s->w, p->row + i, p->begin, p->end, r->columns + i * (LINE + PIXELS) + start);
    transpose(j->delta + (image * s->n + p->filter) * pixels + p->begin, pixels, p->filters, count, r->transposed, p->filters);
    convolution_shape product = {.c = count, .n = p->rows, .h = 1, .w = p->filters, .out_h = 1, .out_w = p->filters};
    product.size = product.stride_x = product.stride_y = product.dilation = 1;
    product.direct = 1;
    convolution_block b = {.s = &product, .begin = 0, .end = count, .first_filter = 0, .end_filter = p->rows};
    j->variant->pack(&b, r->transposed, 0, p->filters, r->strips);
    product.c = LINE + PIXELS, b.begin = start, b.end = start + count;
    j->variant->multiply(&b, r->columns, r->strips, 0, p->filters, r->sums);
}

static part part_of(const job *j, size_t unit) {
    size_t depth = convolution_depth(j->s), rows = (depth + j->row_blocks - 1) / j->row_blocks;
    rows = (rows + TILE - 1) / TILE * TILE;
    part p = {.group = unit / (j->row_blocks * j->filter_blocks)};
    p.row = smaller(unit / j->filter_blocks % j->row_blocks * rows, depth);
    p.rows = smaller(rows, depth - p.row);
    p.filter = smaller(unit % j->filter_blocks * filters_at_once(j->s), j->s->n);
    p.filters = smaller(filters_at_once(j->s), j->s->n - p.filter);
    return p;
}

/* Units are (group, kernel elements, filters); each takes all images in turn. */
static void add_parts(void *context, size_t begin, size_t end, size_t thread) {
    const job *j = context;
    size_t pixels = convolution_pixels(j->s), depth = convolution_depth(j->s);
    room r = room_of(j, thread);
    for (size_t unit = begin; unit < end; ++unit) {
        part p = part_of(j, unit);
        size_t sums = p.rows * p.filters;
        if (!sums) continue;
        float *updates = j->updates + (p.group * j->s->n + p.filter) * depth + p.row;
        transpose(updates, depth, p.filters, p.rows, r.totals, p.filters);
        for (size_t b = 0; b < j->batch; ++b) {
            for (p.begin = 0; p.begin < pixels; p.begin = p.end) {
                p.end = smaller(p.begin + PIXELS, pixels);
                multiply_pixels(j, &p, b * j->groups + p.group, &r);
            }
            for (size_t i = 0; i < sums; ++i) r.totals[i] += r.sums[i];
        }
        transpose(r.totals, p.filters, p.rows, p.filters, updates, depth);
    }
}

/* Units are groups of one filter and one channel. */
static void add_depthwise(void *context, size_t begin, size_t end, size_t thread) {
    const job *j = context;
    const convolution_shape *s = j->s;
    float *padded = j->scratch + thread * weight_gradients_scratch(s);
    for (size_t group = begin; group < end; ++group)
        for (size_t b = 0; b < j->batch; ++b) {
            size_t image = b * j->groups + group;
            add_depthwise_gradients(s, j->input + image * s->h * s->w, j->delta + image * convolution_pixels(s), padded,
                                    j->updates + group * s->size * s->size);
        }
}

void weight_gradients(const convolution_shape *s, size_t batch, size_t groups, const float *input, const float *delta,
                      float *updates, float *scratch, size_t threads) {
    job j = {s, chosen_variant(), batch, groups, 1, 1, input, delta, updates, scratch};
    size_t depth = convolution_depth(s), tiles = (depth + TILE - 1) / TILE;
    if (is_depthwise_gradient(s)) {
        parallel_for_on(threads, groups, batch * convolution_pixels(s) * depth, add_depthwise, &j);
        return;
    }
    j.filter_blocks = (s->n + FILTERS - 1) / FILTERS;
    j.row_blocks = (depth + ROWS - 1) / ROWS;
    if (groups * j.filter_blocks % threads) { /* as much work for each thread as can be */
        j.row_blocks = smaller((j.row_blocks + threads - 1) / threads * threads, tiles);
    }
    size_t units = groups * j.row_blocks * j.filter_blocks;
    parallel_for_on(threads, units, batch * convolution_pixels(s) * depth * s->n * groups / units, add_parts, &j);
}
