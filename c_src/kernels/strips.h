/* Vectors of pixels, and the strips that the tiles of a convolution read. Included by tiles.h. */
#include <stdint.h>
#include <string.h>

#include "variants.h"

#ifndef TILE_LANES
#define TILE_LANES LANES
#endif

enum { STRIP = 2 * TILE_LANES, HALF_LANES = TILE_LANES / 2, FLOATS_OF_A_LINE = 16, PAGE = 4096 };

/* loose: at any address */
#define VECTORS_OF(type, name, width)                                                                                              \
    typedef type name __attribute__((vector_size((width) * sizeof(type))));                                                        \
    typedef type loose_##name __attribute__((vector_size((width) * sizeof(type)), aligned(sizeof(type)), may_alias))

VECTORS_OF(float, lanes, LANES);
VECTORS_OF(float, pixel_lanes, TILE_LANES);
VECTORS_OF(float, half_lanes, HALF_LANES);
VECTORS_OF(int32_t, choice_lanes, TILE_LANES);

static inline lanes load(const float *from) {
    return *(const loose_lanes *)from;
}

static inline void store(float *to, lanes value) {
    *(loose_lanes *)to = value;
}

static inline pixel_lanes load_pixels(const float *from) {
    return *(const loose_pixel_lanes *)from;
}

static inline void store_pixels(float *to, pixel_lanes value) {
    *(loose_pixel_lanes *)to = value;
}

static inline size_t width_of(size_t pixels) {
    return width_of_strip(STRIP, pixels);
}

/* Where the pixels of a strip lie in a plane, for kernel element (0, 0); padding taken off, so that they may wrap below 0. */
typedef struct {
    size_t count, width;
    size_t y[STRIP], x[STRIP], at[STRIP];
} places;

static void locate(const convolution_shape *s, size_t first, size_t count, places *p) {
    size_t row = first / s->out_w, column = first % s->out_w;
    p->count = count, p->width = width_of(count);
    for (size_t i = 0; i < STRIP; ++i) {
        p->y[i] = i < count ? row * s->stride_y - s->pad_y : SIZE_MAX / 2; /* nowhere */
        p->x[i] = column * s->stride_x - s->pad_x;
        p->at[i] = p->y[i] * s->w + p->x[i];
        if (++column == s->out_w) column = 0, ++row;
    }
}

/* From a channel to the next the processor does not see ahead. */
static inline void ask_for_next_strip(const float *from, size_t width) {
    for (size_t i = 0; i < width; i += FLOATS_OF_A_LINE) __builtin_prefetch(from + 2 * width + i);
}

/* All pixels in one row of the image, none of them in the padding */
static int is_run(const convolution_shape *s, const places *p, size_t dy, size_t dx) {
    size_t last = p->width - 1, reach = last * s->stride_x;
    return p->count == p->width && p->x[last] - p->x[0] == reach && p->y[last] == p->y[0] && p->y[0] + dy < s->h &&
           p->x[0] + dx < s->w && p->x[0] + dx + reach < s->w;
}

static inline __attribute__((always_inline)) void copy_run(const float *from, size_t stride, size_t width, float *to) {
    if (stride == 1)
        ask_for_next_strip(from, width), memcpy(to, from, width * sizeof *to);
    else if (stride == 2)
        for (size_t i = 0; i < width; ++i) to[i] = from[2 * i];
    else
        for (size_t i = 0; i < width; ++i) to[i] = from[stride * i];
}

/* With a padding that keeps the size, pixels lie side by side even from row to row; those in the padding are taken out. Not where
 * one of the block's channels would be read from beyond the image. */
static int is_flat(const convolution_block *b, const places *p, size_t shift) {
    const convolution_shape *s = b->s;
    size_t plane = s->h * s->w, start = b->begin * plane + p->at[0] + shift, all = s->c * plane;
    return s->stride_x == 1 && s->stride_y == 1 && s->out_w == s->w && start < all &&
           start + (b->end - b->begin - 1) * plane + p->width <= all;
}

static inline __attribute__((always_inline)) void copy_flat(const convolution_block *b, const float *from,
                                                            const choice_lanes *inside, size_t width, float *to) {
    size_t plane = b->s->h * b->s->w, step = b->s->size * b->s->size * width;
    for (size_t c = b->begin; c < b->end; ++c, from += plane, to += step) {
        ask_for_next_strip(from, width);
        for (size_t i = 0; i < width; i += TILE_LANES)
            store_pixels(to + i, (pixel_lanes)((choice_lanes)load_pixels(from + i) & inside[i / TILE_LANES]));
    }
}

/* One kernel element of one strip, channel after channel */
static inline __attribute__((always_inline)) void pack_element(const convolution_block *b, const float *image, const places *p,
                                                               size_t dy, size_t dx, size_t width, float *to) {
    const convolution_shape *s = b->s;
    size_t plane = s->h * s->w, step = s->size * s->size * width, shift = dy * s->w + dx;
    const float *from = image + b->begin * plane;
    if (is_run(s, p, dy, dx)) {
        for (size_t c = b->begin; c < b->end; ++c, from += plane, to += step)
            copy_run(from + (ptrdiff_t)(p->at[0] + shift), s->stride_x, width, to);
        return;
    }
    union {
        int32_t each[STRIP];
        choice_lanes all[2];
    } inside;
    for (size_t i = 0; i < width; ++i) inside.each[i] = -((p->y[i] + dy < s->h) & (p->x[i] + dx < s->w));
    if (width >= TILE_LANES && is_flat(b, p, shift)) {
        copy_flat(b, from + (ptrdiff_t)(p->at[0] + shift), inside.all, width, to);
        return;
    }
    for (size_t c = b->begin; c < b->end; ++c, from += plane, to += step)
        for (size_t i = 0; i < width; ++i) to[i] = inside.each[i] ? from[p->at[i] + shift] : 0;
}

/* The image is the matrix: a row of it goes to all strips, so that it is read from end to end. */
static void pack_direct(const convolution_block *b, const float *image, size_t first, size_t pixels, float *to) {
    size_t plane = b->s->out_h * b->s->out_w, depth = b->end - b->begin, whole = pixels / STRIP * STRIP;
    size_t rest = pixels - whole, width = width_of(rest);
    const float *from = image + b->begin * plane + first;
    float *last = to + whole * depth;
    for (size_t c = 0; c < depth; ++c, from += plane, to += STRIP, last += width) {
        float *strip = to;
        for (size_t j = 0; j < whole; j += STRIP, strip += depth * STRIP) memcpy(strip, from + j, STRIP * sizeof *to);
        for (size_t i = 0; rest && i < width; ++i) last[i] = i < rest ? from[whole + i] : 0;
    }
}

static void pack(const convolution_block *b, const float *image, size_t first, size_t pixels, float *to) {
    const convolution_shape *s = b->s;
    size_t area = s->size * s->size, depth = (b->end - b->begin) * area;
    if (s->direct) {
        pack_direct(b, image, first, pixels, to);
        return;
    }
    for (size_t j = 0; j < pixels; j += STRIP, to += depth * STRIP) {
        places p;
        locate(s, first + j, pixels - j < STRIP ? pixels - j : STRIP, &p);
        for (size_t k = 0; k < area; ++k) {
            size_t dy = k / s->size * s->dilation, dx = k % s->size * s->dilation;
            if (p.width == STRIP)
                pack_element(b, image, &p, dy, dx, STRIP, to + k * STRIP);
            else if (p.width == TILE_LANES)
                pack_element(b, image, &p, dy, dx, TILE_LANES, to + k * TILE_LANES);
            else
                pack_element(b, image, &p, dy, dx, HALF_LANES, to + k * HALF_LANES);
        }
    }
}
