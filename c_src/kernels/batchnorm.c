/* Batch normalization at the speed of the memory: batchnorm_plain.c computed for WIDTH channels at a time, each in its own order.
 *
 * A float sum waits for its addition before, so one channel alone keeps a processor idle. The channels of a group are turned to lie
 * beside each other in a vector. Each pass goes through the memory from end to end, image after image and in it group after group,
 * since a processor sees far ahead on few long ways only; the sums of CHUNK channels wait meanwhile. Channels are independent. */
#include <math.h>
#include <string.h>

#include "../internal.h"
#include "variants.h"

enum { CHUNK = 256 };

typedef struct {
    const batchnorm_pass *p;
    const variant *variant;
    size_t width; /* channels of a group */
} job;

/* Some channels, of a multiple of the width; past the last one that one again, whose results nobody takes */
typedef struct {
    const job *j;
    size_t first, end;
} chunk;

static size_t channel_at(const chunk *c, size_t i) {
    return c->first + i < c->end ? c->first + i : c->end - 1;
}

static size_t channels_of(const chunk *c) {
    return c->end - c->first;
}

/* Where the channel before ends a span, reads the next span's planes of image b from end to end: so the processor runs ahead, which it
 * does not on many short rows at a time. Long rows need no help. */
static void read_ahead(const chunk *c, const float *array, size_t b, size_t i) {
    enum { FLOATS_OF_A_LINE = 16, SPAN = 1 << 15 };
    const batchnorm_pass *p = c->j->p;
    size_t width = c->j->width, groups = SPAN / (width * p->spatial);
    if (!groups || i % (groups * width)) return;
    size_t end = i + groups * width < channels_of(c) ? i + groups * width : channels_of(c);
    const float *first = array + (b * p->c + c->first + i) * p->spatial;
    for (size_t k = 0; k < (end - i) * p->spatial; k += FLOATS_OF_A_LINE) (void)*(const volatile float *)(first + k);
}

/* The planes of a group of image b, from the chunk's channel i on */
static void point(const chunk *c, const float *array, size_t b, size_t i, const float **planes) {
    const batchnorm_pass *p = c->j->p;
    for (size_t k = 0; k < c->j->width; ++k) planes[k] = array + (b * p->c + channel_at(c, i + k)) * p->spatial;
    read_ahead(c, array, b, i);
}

/* An array that may be NULL, at an offset */
static float *at(float *array, size_t offset) {
    return array ? array + offset : NULL;
}

/* The next float that is not above, or not below, a value */
static float not_above(double value) {
    float f = (float)value;
    return (double)f > value ? nextafterf(f, -INFINITY) : f;
}

/* See quotients() of batchnorm_planes.h. mean: of what the numerators are off. */
static divisor divisor_of(double root, float mean, precision intermediate) {
    divisor d = {.root = root, .mean = mean, .how = intermediate == PRECISION_FLOAT ? BY_FLOAT : BY_DOUBLE};
    double size = fabs((double)mean);
    if (d.how == BY_FLOAT || !(root >= 0x1p-20 && root <= 0x1p20 && size <= 0x1p100)) return d;
    int exponent;
    double inverse = 1 / root, mantissa = frexp(inverse, &exponent);
    d.head = (float)ldexp(rint(ldexp(mantissa, 12)), exponent - 12);
    double tail = inverse - (double)d.head, slack = inverse * QUOTIENT_SLACK;
    d.low = not_above(tail - slack), d.high = -not_above(-(tail + slack));
    d.how = size >= 0x1p-40 ? BY_PRODUCT : BY_PRODUCT_OR_TINY;
    return d;
}

static divisor forward_divisor(const batchnorm_pass *p, size_t f) {
    double root = batchnorm_root(p->variance[f], &p->rule->forward, p->rule->intermediate);
    return divisor_of(root, p->mean[f], p->rule->intermediate);
}

/* Images first..end of the chunk's channels; in the first and last image only planes begin.. and ..end of all */
static void normalize_chunk(const chunk *c, size_t begin, size_t end) {
    const batchnorm_pass *p = c->j->p;
    divisor divisors[CHUNK];
    for (size_t f = c->first; f < c->end; ++f) divisors[f - c->first] = forward_divisor(p, f);
    for (size_t b = begin / p->c; b * p->c < end; ++b) {
        for (size_t f = c->first; f < c->end; ++f) {
            size_t plane = b * p->c + f, offset = plane * p->spatial;
            if (plane < begin || plane >= end) continue;
            plane_normalization n = {.n = p->spatial,
                                     .by = &divisors[f - c->first],
                                     .input = p->input + offset,
                                     .x = at(p->x, offset),
                                     .x_norm = at(p->x_norm, offset),
                                     .output = p->output + offset,
                                     .scale = p->scales[f],
                                     .bias = p->biases[f]};
            c->j->variant->normalize(&n);
        }
    }
}

/* Planes begin..end in the order of the memory */
static void infer_planes(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const job *j = context;
    size_t channels = j->p->c, within = begin / channels == (end - 1) / channels; /* one image */
    size_t first = within ? begin % channels : 0, last = within ? (end - 1) % channels + 1 : channels;
    for (; first < last; first += CHUNK)
        normalize_chunk(&(chunk){j, first, first + CHUNK < last ? first + CHUNK : last}, begin, end);
}

static void chunk_statistics(const chunk *c) {
    const batchnorm_pass *p = c->j->p;
    const float *x[WIDTH];
    float means[CHUNK] = {0}, squares[CHUNK] = {0};
    size_t n = p->batch * p->spatial;
    group g = {c->j->width, p->spatial};
    float scale = (float)(1. / (double)n), less = (float)(1. / (double)(n - 1));
    for (size_t b = 0; b < p->batch; ++b) {
        for (size_t i = 0; i < channels_of(c); i += g.width) {
            point(c, p->input, b, i, x);
            c->j->variant->sum(x, &g, means + i);
        }
    }
    for (size_t i = 0; i < CHUNK; ++i) means[i] *= scale;
    for (size_t b = 0; b < p->batch; ++b) {
        for (size_t i = 0; i < channels_of(c); i += g.width) {
            point(c, p->input, b, i, x);
            c->j->variant->squares(x, &g, means + i, squares + i);
        }
    }
    for (size_t i = 0; i < channels_of(c); ++i) {
        size_t f = c->first + i;
        p->mean[f] = means[i];
        p->variance[f] = squares[i] * (p->rule->normalize_variance == DENOMINATOR_N ? scale : less);
        p->kept[f] = squares[i] * (p->rule->keep_variance == DENOMINATOR_N ? scale : less);
    }
}

static void train_chunk(const chunk *c) {
    chunk_statistics(c);
    normalize_chunk(c, 0, c->j->p->batch * c->j->p->c);
}

/* Sums of the chunk's channels, see group_deltas */
typedef float chunk_sums[4][CHUNK];

static void sum_deltas(const chunk *c, chunk_sums sums) {
    const batchnorm_pass *p = c->j->p;
    const float *x[WIDTH], *x_norm[WIDTH], *delta[WIDTH];
    float means[CHUNK], scales[CHUNK];
    group_deltas d = {.group = {c->j->width, p->spatial}, .x = x, .x_norm = x_norm, .delta = delta};
    for (size_t i = 0; i < CHUNK; ++i) means[i] = p->mean[channel_at(c, i)], scales[i] = p->scales[channel_at(c, i)];
    for (size_t b = 0; b < p->batch; ++b) {
        memset(sums[0], 0, sizeof sums[0]); /* the biases' sums begin with each image */
        for (size_t i = 0; i < channels_of(c); i += d.group.width) {
            point(c, p->x, b, i, x);
            point(c, p->x_norm, b, i, x_norm);
            point(c, p->input, b, i, delta);
            d.means = means + i, d.scales = scales + i;
            for (size_t k = 0; k < 4; ++k) d.sums[k] = sums[k] + i;
            c->j->variant->delta_sums(&d);
        }
        for (size_t f = c->first; p->bias_updates && f < c->end; ++f) p->bias_updates[f] += sums[0][f - c->first];
    }
}

static void use_sums(const chunk *c, chunk_sums sums) {
    const batchnorm_pass *p = c->j->p;
    const epsilon_rule *e = &p->rule->statistic_terms;
    for (size_t i = 0; i < channels_of(c); ++i) {
        size_t f = c->first + i;
        p->scale_updates[f] += sums[1][i];
        if (p->constant) continue;
        p->mean_delta[f] = (float)((double)sums[2][i] * (-1. / batchnorm_root(p->variance[f], e, p->rule->intermediate)));
        double power = batchnorm_root_to_minus_3(p->variance[f], e, p->rule->intermediate);
        p->variance_delta[f] = (float)((double)sums[3][i] * (-.5 * power));
    }
}

static plane_delta delta_of(const batchnorm_pass *p, size_t f) {
    size_t count = p->batch * p->spatial;
    plane_delta d = {.n = p->spatial, .mean = p->mean[f], .scale = p->scales[f], .count = (double)count};
    d.root = batchnorm_root(p->variance[f], &p->rule->direct_term, p->rule->intermediate);
    d.constant = p->constant;
    if (!p->constant) {
        d.variance_term = (double)p->variance_delta[f] * 2.;
        d.mean_term = (double)(p->mean_delta[f] / (float)count);
    }
    return d;
}

static void carry_chunk(const chunk *c) {
    const batchnorm_pass *p = c->j->p;
    plane_delta all[CHUNK];
    for (size_t f = c->first; f < c->end; ++f) all[f - c->first] = delta_of(p, f);
    for (size_t b = 0; b < p->batch; ++b) {
        for (size_t f = c->first; f < c->end; ++f) {
            size_t offset = (b * p->c + f) * p->spatial;
            plane_delta *d = &all[f - c->first];
            d->x = p->x + offset, d->delta = p->input + offset, d->output = p->output + offset;
            c->j->variant->carry(d);
        }
    }
}

static void backward_chunk(const chunk *c) {
    chunk_sums sums = {{0}};
    sum_deltas(c, sums);
    use_sums(c, sums);
    carry_chunk(c);
}

/* Groups begin..end, chunk after chunk */
static void over_chunks(const job *j, size_t begin, size_t end, void (*take)(const chunk *)) {
    size_t first = begin * j->width, last = end * j->width < j->p->c ? end * j->width : j->p->c;
    for (; first < last; first += CHUNK) take(&(chunk){j, first, first + CHUNK < last ? first + CHUNK : last});
}

static void train_groups(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    over_chunks(context, begin, end, train_chunk);
}

static void backward_groups(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    over_chunks(context, begin, end, backward_chunk);
}

static void over_groups(const batchnorm_pass *p, size_t width, size_t work, parallel_body body) {
    size_t threads = get_num_threads();
    if (p->c < width * threads) width = WIDTH / 2;
    job j = {p, chosen_variant(), width};
    parallel_for_on(threads, (p->c + width - 1) / width, width * p->batch * p->spatial * work, body, &j);
}

void batchnorm_train(const batchnorm_pass *p) {
    over_groups(p, WIDTH, 8, train_groups);
}

void batchnorm_infer(const batchnorm_pass *p) {
    job j = {.p = p, .variant = chosen_variant()};
    parallel_for(p->batch * p->c, p->spatial * 4, infer_planes, &j);
}

void batchnorm_backward(const batchnorm_pass *p) {
    over_groups(p, WIDTH / 2, 12, backward_groups); /* three arrays: more channels would be more places than the memory likes */
}
