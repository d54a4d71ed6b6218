/* The matrix product of a convolution without its matrix.
 *
 * For each output the sum runs over k = (channel, kernel row, kernel column) from 0 upwards, product and sum rounded to float
 * apart: the order of im2col followed by gemm_nn (pjreddie/darknet src/im2col.c, src/gemm.c). Outputs are independent, so they are
 * computed a tile at a time: filters over a strip of pixels, which is packed in the order in which it is read (tiles.h). A block of
 * channels is packed for as many strips as stay in the cache; between two blocks the sums wait in the output, which rounds nothing.
 * convolve_plain is the specification. */
#include <stdint.h>
#include <string.h>

#include "../internal.h"
#include "variants.h"

/* Pixels taken at a time, a multiple of every strip; cut of filters; see is_cut_by_filters(); floats of a line of 64 B */
enum { PIXELS = 192, FILTERS = 4, PACKING = 6, LINE = 16 };

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

int is_depthwise(const convolution_shape *s) {
    /* what is copied stays near the image's own size */
    return s->c == 1 && s->n == 1 && s->size * s->size <= DEPTHWISE_AREA && !s->direct && s->pad_x <= s->w && s->pad_y <= s->h &&
           s->stride_x <= s->w;
}

size_t depthwise_scratch(const convolution_shape *s) {
    size_t width = (s->w + 2 * s->pad_x) / s->stride_x + 1;
    return (s->h + 2 * s->pad_y) * s->stride_x * width + chosen_variant()->strip;
}

/* Blocks of about the same depth, since a short one moves its sums for little work */
static size_t channels_at_once(const convolution_shape *s) {
    size_t area = s->size * s->size, most = area < BLOCK_DEPTH ? BLOCK_DEPTH / area : 1, blocks = (s->c + most - 1) / most;
    return (s->c + blocks - 1) / blocks;
}

size_t convolve_scratch(const convolution_shape *s) {
    size_t floats = PIXELS * channels_at_once(s) * s->size * s->size;
    if (is_depthwise(s)) floats = depthwise_scratch(s);
    return (floats + 2 * LINE - 1) / LINE * LINE; /* one line more, to start at one */
}

typedef struct {
    const convolution_shape *s;
    const variant *variant;
    size_t groups, images;
    const float *input, *weights;
    float *output, *scratch;
    const finisher *finish; /* NULL: none */
} job;

static float *scratch_of(const job *j, size_t thread) {
    uintptr_t start = (uintptr_t)(j->scratch + thread * convolve_scratch(j->s)), line = LINE * sizeof(float);
    return (float *)((start + line - 1) / line * line);
}

/* Pixels of a cut by pixels */
static size_t width_of_part(const job *j) {
    return j->variant->strip / 2;
}

static size_t parts_of(const job *j) {
    return (j->s->out_h * j->s->out_w + width_of_part(j) - 1) / width_of_part(j);
}

/* Parts begin..end of one image */
static void convolve_image(const job *j, convolution_block b, size_t image, size_t begin, size_t end, float *strips) {
    const convolution_shape *s = j->s;
    size_t area = s->size * s->size, pixels = s->out_h * s->out_w, channels = channels_at_once(s);
    const float *from = j->input + image * s->c * s->h * s->w, *weights = j->weights + image % j->groups * s->n * s->c * area;
    float *output = j->output + image * s->n * pixels;
    size_t stop = end * width_of_part(j) < pixels ? end * width_of_part(j) : pixels;
    for (size_t first = begin * width_of_part(j); first < stop; first += PIXELS) {
        size_t count = stop - first < PIXELS ? stop - first : PIXELS;
        for (b.begin = 0; b.begin < s->c; b.begin = b.end) {
            b.end = b.begin + channels < s->c ? b.begin + channels : s->c;
            j->variant->pack(&b, from, first, count, strips);
            j->variant->multiply(&b, weights, strips, first, count, output);
        }
        for (size_t f = b.first_filter; j->finish && f < b.end_filter; ++f)
            j->finish->run(j->finish->context, output + f * pixels + first, count, image % j->groups * s->n + f);
    }
}

/* All filters over the parts begin..end of all images */
static void convolve_parts(void *context, size_t begin, size_t end, size_t thread) {
    const job *j = context;
    size_t parts = parts_of(j);
    convolution_block b = {.s = j->s, .first_filter = 0, .end_filter = j->s->n};
    while (begin < end) {
        size_t image = begin / parts, stop = (image + 1) * parts < end ? (image + 1) * parts : end;
        convolve_image(j, b, image, begin - image * parts, stop - image * parts, scratch_of(j, thread));
        begin = stop;
    }
}

/* The filters of begin..end, FILTERS each, over all pixels */
static void convolve_filters(void *context, size_t begin, size_t end, size_t thread) {
    const job *j = context;
    size_t last = end * FILTERS < j->s->n ? end * FILTERS : j->s->n;
    convolution_block b = {.s = j->s, .first_filter = begin * FILTERS, .end_filter = last};
    for (size_t image = 0; image < j->images; ++image) convolve_image(j, b, image, 0, parts_of(j), scratch_of(j, thread));
}

static void convolve_depthwise(void *context, size_t begin, size_t end, size_t thread) {
    const job *j = context;
    const convolution_shape *s = j->s;
    float *scratch = scratch_of(j, thread);
    memset(scratch, 0, depthwise_scratch(s) * sizeof *scratch); /* the padding, which every image has in the same places */
    for (size_t i = begin; i < end; ++i) {
        float *output = j->output + i * s->out_h * s->out_w;
        j->variant->depthwise(s, j->input + i * s->h * s->w, j->weights + i % j->groups * s->size * s->size, scratch, output);
        if (j->finish) j->finish->run(j->finish->context, output, s->out_h * s->out_w, i % j->groups);
    }
}

/* The time that the largest of the threads' shares takes, for the time of an even one */
static double unevenness(size_t parts, size_t threads, double even) {
    return (double)((parts + threads - 1) / threads * threads) / even;
}

/* Whether few pixels make a cut by filters more even. Each thread packs all pixels then, which takes the time of PACKING filters. */
static int is_cut_by_filters(const job *j, size_t parts, size_t filters, size_t threads) {
    double packing = 1 + (double)(PACKING * (threads - 1)) / (double)j->s->n;
    double pixels = (double)(j->images * j->s->out_h * j->s->out_w) / (double)width_of_part(j);
    return unevenness(filters, threads, (double)j->s->n / FILTERS) * packing < unevenness(parts, threads, pixels);
}

void convolve(const convolution_shape *s, size_t images, size_t groups, const float *input, const float *weights, float *output,
              float *scratch, size_t threads) {
    convolve_finished(s, images, groups, input, weights, output, scratch, threads, NULL);
}

void convolve_finished(const convolution_shape *s, size_t images, size_t groups, const float *input, const float *weights,
                       float *output, float *scratch, size_t threads, const finisher *f) {
    job j = {s, chosen_variant(), groups, images, input, weights, output, scratch, f};
    size_t parts = images * parts_of(&j), area = s->size * s->size, filters = (s->n + FILTERS - 1) / FILTERS;
    if (is_depthwise(s))
        parallel_for_on(threads, images, area * s->out_h * s->out_w, convolve_depthwise, &j);
    else if (threads > 1 && is_cut_by_filters(&j, parts, filters, threads))
        parallel_for_on(threads, filters, FILTERS * s->c * area * parts * width_of_part(&j), convolve_filters, &j);
    else
        parallel_for_on(threads, parts, s->n * s->c * area * width_of_part(&j), convolve_parts, &j);
}
