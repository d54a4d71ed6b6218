/* The inner loops of a convolution for vectors of LANES floats. Included by one file for each instruction set, which sets
 * LANES. Multiplication and addition are rounded apart: no file that includes this may be compiled with contraction. */
#include <string.h>

#include "variants.h"

enum { ROWS = 6, STRIP = 2 * LANES };

typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));
typedef float loose_lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias)); /* at any address */

static inline lanes load(const float *from) {
    return *(const loose_lanes *)from;
}

static inline void store(float *to, lanes value) {
    *(loose_lanes *)to = value;
}

/* ---- packing ---------------------------------------------------------------------------------------------------------------- */

/* Where the pixels of a strip lie under kernel element (row, column) = (dy, dx), padding taken off; -1 in the padding. */
static void locate(const convolution_shape *s, size_t dy, size_t dx, size_t first, size_t count, ptrdiff_t *at) {
    size_t row = first / s->out_w, column = first % s->out_w;
    for (size_t i = 0; i < STRIP; ++i) {
        size_t y = row * s->stride_y + dy, x = column * s->stride_x + dx;
        int inside = i < count && y >= s->pad_y && y - s->pad_y < s->h && x >= s->pad_x && x - s->pad_x < s->w;
        at[i] = inside ? (ptrdiff_t)((y - s->pad_y) * s->w + x - s->pad_x) : -1;
        if (++column == s->out_w) column = 0, ++row;
    }
}

/* A full strip within one row of the image, none of it in the padding: pixels start, start + stride_x, ... */
static int is_run(const convolution_shape *s, size_t dy, size_t dx, size_t first, size_t count, size_t *start) {
    size_t column = first % s->out_w, y = first / s->out_w * s->stride_y + dy, x = column * s->stride_x + dx;
    *start = (y - s->pad_y) * s->w + x - s->pad_x;
    return count == STRIP && column + STRIP <= s->out_w && y >= s->pad_y && y - s->pad_y < s->h && x >= s->pad_x &&
           x - s->pad_x + (STRIP - 1) * s->stride_x < s->w;
}

static inline void copy_run(const float *from, size_t stride, float *to) {
    if (stride == 1)
        memcpy(to, from, STRIP * sizeof *to);
    else if (stride == 2)
        for (size_t i = 0; i < STRIP; ++i) to[i] = from[2 * i];
    else
        for (size_t i = 0; i < STRIP; ++i) to[i] = from[stride * i];
}

static void pack_element(const convolution_block *b, const float *plane, size_t dy, size_t dx, size_t first, size_t count,
                         float *to) {
    const convolution_shape *s = b->s;
    size_t step = s->size * s->size * STRIP, start;
    if (is_run(s, dy, dx, first, count, &start)) {
        for (size_t c = b->begin; c < b->end; ++c, to += step) copy_run(plane + c * s->h * s->w + start, s->stride_x, to);
        return;
    }
    ptrdiff_t at[STRIP];
    locate(s, dy, dx, first, count, at);
    for (size_t c = b->begin; c < b->end; ++c, to += step) {
        const float *from = plane + c * s->h * s->w;
        for (size_t i = 0; i < STRIP; ++i) to[i] = at[i] >= 0 ? from[at[i]] : 0;
    }
}

/* The image is the matrix: a row of it goes to all strips, so that it is read from end to end. */
static void pack_direct(const convolution_block *b, const float *image, size_t first, size_t pixels, float *to) {
    size_t plane = b->s->out_h * b->s->out_w, step = (b->end - b->begin) * STRIP, whole = pixels / STRIP * STRIP;
    const float *from = image + b->begin * plane + first;
    for (size_t c = b->begin; c < b->end; ++c, from += plane, to += STRIP) {
        float *strip = to;
        for (size_t j = 0; j < whole; j += STRIP, strip += step) memcpy(strip, from + j, STRIP * sizeof *to);
        if (whole == pixels) continue;
        for (size_t i = 0; i < STRIP; ++i) strip[i] = whole + i < pixels ? from[whole + i] : 0;
    }
}

static void pack(const convolution_block *b, const float *image, size_t first, size_t pixels, float *to) {
    const convolution_shape *s = b->s;
    if (s->direct) {
        pack_direct(b, image, first, pixels, to);
        return;
    }
    for (size_t j = 0; j < pixels; j += STRIP, to += (b->end - b->begin - 1) * s->size * s->size * STRIP) {
        size_t count = pixels - j < STRIP ? pixels - j : STRIP;
        for (size_t row = 0; row < s->size; ++row)
            for (size_t column = 0; column < s->size; ++column, to += STRIP)
                pack_element(b, image, row * s->dilation, column * s->dilation, first + j, count, to);
    }
}

/* ---- multiplying ------------------------------------------------------------------------------------------------------------ */

/* rows x STRIP sums, held in registers, go on over depth products each */
static inline __attribute__((always_inline)) void tile(size_t rows, size_t depth, const float *weights, size_t weights_step,
                                                       const float *strip, int go_on, float *output, size_t output_step) {
    lanes sums[ROWS][2] = {0};
    for (size_t i = 0; go_on && i < rows; ++i)
        sums[i][0] = load(output + i * output_step), sums[i][1] = load(output + i * output_step + LANES);
    for (size_t k = 0; k < depth; ++k, strip += STRIP) {
        lanes left = load(strip), right = load(strip + LANES);
        for (size_t i = 0; i < rows; ++i) {
            float weight = weights[i * weights_step + k];
            sums[i][0] += weight * left;
            sums[i][1] += weight * right;
        }
    }
    for (size_t i = 0; i < rows; ++i) {
        store(output + i * output_step, sums[i][0]);
        store(output + i * output_step + LANES, sums[i][1]);
    }
}

static void tile_of(size_t rows, size_t depth, const float *weights, size_t weights_step, const float *strip, int go_on,
                    float *output, size_t output_step) {
    switch (rows) {
        case 1: tile(1, depth, weights, weights_step, strip, go_on, output, output_step); break;
        case 2: tile(2, depth, weights, weights_step, strip, go_on, output, output_step); break;
        case 3: tile(3, depth, weights, weights_step, strip, go_on, output, output_step); break;
        case 4: tile(4, depth, weights, weights_step, strip, go_on, output, output_step); break;
        case 5: tile(5, depth, weights, weights_step, strip, go_on, output, output_step); break;
        default: tile(ROWS, depth, weights, weights_step, strip, go_on, output, output_step); break;
    }
}

/* The last pixels of an image do not fill a strip: the tile works on a copy. */
static void narrow_tile(size_t rows, size_t depth, const float *weights, size_t weights_step, const float *strip, int go_on,
                        float *output, size_t output_step, size_t count) {
    float copy[ROWS * STRIP] = {0};
    for (size_t i = 0; go_on && i < rows; ++i) memcpy(copy + i * STRIP, output + i * output_step, count * sizeof(float));
    tile_of(rows, depth, weights, weights_step, strip, go_on, copy, STRIP);
    for (size_t i = 0; i < rows; ++i) memcpy(output + i * output_step, copy + i * STRIP, count * sizeof(float));
}

/* Asks for a part of the next filters' weights while these are worked on: their rows are too short for the processor to see ahead. */
static inline void ask_for(const float *weights, size_t weights_step, size_t begin, size_t end) {
    enum { FLOATS_OF_A_LINE = 16 };
    for (size_t k = begin; k < end; k += FLOATS_OF_A_LINE)
        for (size_t i = 0; i < ROWS; ++i) __builtin_prefetch(weights + i * weights_step + k);
}

static void multiply(const convolution_block *b, const float *weights, const float *strips, size_t first, size_t pixels,
                     float *output) {
    const convolution_shape *s = b->s;
    size_t area = s->size * s->size, depth = (b->end - b->begin) * area, row = s->c * area, plane = s->out_h * s->out_w;
    int go_on = b->begin > 0;
    for (size_t f = b->first_filter; f < b->end_filter; f += ROWS) {
        size_t rows = b->end_filter - f < ROWS ? b->end_filter - f : ROWS;
        const float *a = weights + f * row + b->begin * area, *strip = strips;
        for (size_t j = 0; j < pixels; j += STRIP, strip += depth * STRIP) {
            float *out = output + f * plane + first + j;
            if (f + 2 * ROWS <= b->end_filter)
                ask_for(a + ROWS * row, row, j * depth / pixels, (j + STRIP < pixels ? j + STRIP : pixels) * depth / pixels);
            if (pixels - j < STRIP)
                narrow_tile(rows, depth, a, row, strip, go_on, out, plane, pixels - j);
            else
                tile_of(rows, depth, a, row, strip, go_on, out, plane);
        }
    }
}

/* ---- one filter of one channel ---------------------------------------------------------------------------------------------- */

static void copy_by_phase(const convolution_shape *s, const float *image, float *to, size_t width) {
    size_t step = s->stride_x;
    for (size_t y = 0; y < s->h; ++y) {
        const float *from = image + y * s->w;
        for (size_t phase = 0; phase < step; ++phase) {
            size_t x = (phase + step - s->pad_x % step) % step; /* the first column of that phase */
            float *row = to + ((y + s->pad_y) * step + phase) * width + (x + s->pad_x) / step;
            if (step == 2)
                for (; x < s->w; x += 2) *row++ = from[x];
            else
                for (; x < s->w; x += step) *row++ = from[x];
        }
    }
}

static void depthwise(const convolution_shape *s, const float *image, const float *weights, float *scratch, float *output) {
    size_t step = s->stride_x, width = (s->w + 2 * s->pad_x) / step + 1, line = step * width, area = s->size * s->size;
    size_t at[DEPTHWISE_AREA]; /* of each weight's pixel, from the first one's */
    for (size_t k = 0; k < area; ++k) {
        size_t dx = k % s->size * s->dilation;
        at[k] = k / s->size * s->dilation * line + dx % step * width + dx / step;
    }
    memset(scratch, 0, depthwise_scratch(s) * sizeof *scratch);
    copy_by_phase(s, image, scratch, width);
    for (size_t y = 0; y < s->out_h; ++y) {
        for (size_t x = 0; x < s->out_w; x += STRIP) {
            lanes left = {0}, right = {0};
            const float *from = scratch + y * s->stride_y * line + x;
            for (size_t k = 0; k < area; ++k) {
                left += weights[k] * load(from + at[k]);
                right += weights[k] * load(from + at[k] + LANES);
            }
            float *out = output + y * s->out_w + x, both[STRIP];
            if (x + STRIP <= s->out_w) {
                store(out, left), store(out + LANES, right);
                continue;
            }
            store(both, left), store(both + LANES, right);
            for (size_t i = 0; x + i < s->out_w; ++i) out[i] = both[i];
        }
    }
}
