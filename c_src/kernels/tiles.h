/* The inner loops of a convolution for tiles of ROWS filters and a strip of two vectors of pixels. Included by one file for each
 * instruction set, which sets LANES, for pixels TILE_LANES where that differs, and ROWS. Multiplication and addition are rounded
 * apart: no file that includes this may be compiled with contraction. */
#include "strips.h"

#if defined(__AVX512F__)
/* Compilers spread a weight that is used twice into a register first, which takes longer than to read it twice. */
static inline pixel_lanes scaled(const float *weight, pixel_lanes pixels) {
    pixel_lanes product;
    __asm__("vmulps %2%{1to16%}, %1, %0" : "=v"(product) : "v"(pixels), "m"(*weight));
    return product;
}
#else
static inline pixel_lanes scaled(const float *weight, pixel_lanes pixels) {
    return *weight * pixels;
}
#endif

/* A loop over rows becomes code for each, or the sums would not be in registers. */
#if defined(__clang__)
#define ALL_ROWS _Pragma("clang loop unroll(full)")
#else
#define ALL_ROWS _Pragma("GCC unroll 16")
#endif

/* A tile's place: the weights of its filters, its strip, its sums; steps from one filter to the next */
typedef struct {
    const float *weights, *strip;
    float *output;
    size_t depth, weights_step, output_step;
    int go_on; /* the sums start from what output holds */
} place;

#define TIMES(weight, pixels) scaled(weight, pixels)
#define NAME wide_tile
#define VECTOR pixel_lanes
#define COLUMNS 2
#include "tile.h"
#define NAME narrow_tile
#define VECTOR pixel_lanes
#define COLUMNS 1
#include "tile.h"
#undef TIMES
#define TIMES(weight, pixels) (*(weight) * (pixels))
#define NAME half_tile
#define VECTOR half_lanes
#define COLUMNS 1
#include "tile.h"
#undef TIMES

/* width: of the strip */
static void tile_of(const place *p, size_t rows, size_t width) {
    if (width == STRIP)
        wide_tile(p, rows);
    else if (width == TILE_LANES)
        narrow_tile(p, rows);
    else
        half_tile(p, rows);
}

/* The last pixels of an image may not fill the vectors: the tile works on a copy then. */
static void part_of_tile(const place *p, size_t rows, size_t count) {
    float copy[ROWS * STRIP] = {0};
    place other = *p;
    other.output = copy, other.output_step = STRIP;
    for (size_t i = 0; p->go_on && i < rows; ++i) memcpy(copy + i * STRIP, p->output + i * p->output_step, count * sizeof(float));
    tile_of(&other, rows, width_of(count));
    for (size_t i = 0; i < rows; ++i) memcpy(p->output + i * p->output_step, copy + i * STRIP, count * sizeof(float));
}

/* Asks for a part of the next filters' weights while these are worked on, so that a copy does not wait for them. */
static inline void ask_for(const float *weights, size_t weights_step, size_t begin, size_t end) {
    for (size_t k = begin; k < end; k += FLOATS_OF_A_LINE)
        for (size_t i = 0; i < ROWS; ++i) __builtin_prefetch(weights + i * weights_step + k);
}

/* Rows of weights that are a multiple of a page apart push each other out of the cache: a copy of them does not. */
static int is_better_copied(size_t weights_step, size_t depth) {
    return weights_step * sizeof(float) % PAGE == 0 && depth <= BLOCK_DEPTH;
}

static void multiply(const convolution_block *b, const float *weights, const float *strips, size_t first, size_t pixels,
                     float *output) {
    const convolution_shape *s = b->s;
    size_t area = s->size * s->size, depth = (b->end - b->begin) * area, row = s->c * area, plane = s->out_h * s->out_w;
    int copied = is_better_copied(row, depth);
    float copy[ROWS * BLOCK_DEPTH];
    for (size_t f = b->first_filter; f < b->end_filter; f += ROWS) {
        size_t rows = b->end_filter - f < ROWS ? b->end_filter - f : ROWS;
        const float *a = weights + f * row + b->begin * area;
        place p = {.strip = strips, .depth = depth, .output_step = plane, .go_on = b->begin > 0};
        p.weights = copied ? copy : a, p.weights_step = copied ? depth : row;
        for (size_t i = 0; copied && i < rows; ++i) memcpy(copy + i * depth, a + i * row, depth * sizeof *copy);
        for (size_t j = 0; j < pixels; j += STRIP, p.strip += depth * STRIP) {
            size_t count = pixels - j < STRIP ? pixels - j : STRIP;
            if (copied && f + 2 * ROWS <= b->end_filter)
                ask_for(a + ROWS * row, row, j * depth / pixels, (j + count) * depth / pixels);
            p.output = output + f * plane + first + j;
            if (count == width_of(count))
                tile_of(&p, rows, count);
            else
                part_of_tile(&p, rows, count);
        }
    }
}
