/* Batch normalization at the speed of the memory: batchnorm_plain.c computed for some channels at a time, each in its own order.
 *
 * A float sum waits for its addition before, so one channel alone keeps a processor idle. The channels of a group are turned to lie
 * beside each other in vectors. A group goes through all images before the next one begins, so that later passes find it in a cache;
 * where the order is free they begin with the last image, which was seen last. Channels are independent. */
#include <math.h>
#include <string.h>

#include "../internal.h"
#include "batchnorm_root.h"
#include "variants.h"

enum { LARGEST_VECTOR = 16, LARGEST_GROUP = VECTORS * LARGEST_VECTOR, CHUNK = 256 };

typedef struct {
    const batchnorm_pass *p;
    const variant *variant;
    size_t width; /* channels of a group */
} job;

/* Channels first..first+channels */
typedef struct {
    const job *j;
    size_t first, channels;
} channel_group;

/* Their planes of image b */
static size_t offset_of(const channel_group *g, size_t b) {
    return (b * g->j->p->c + g->first) * g->j->p->spatial;
}

/* An array that may be NULL, at an offset */
static float *at(float *array, size_t offset) {
    return array ? array + offset : NULL;
}

/* ---- constants of a channel ------------------------------------------------------------------------------------------------- */

static reciprocal reciprocal_from(double inverse, float head, double slack) {
    double rest = inverse - (double)head;
    return (reciprocal){head, (float)(rest - inverse * slack), (float)(rest + inverse * slack)};
}

static float first_12_bits(float value) {
    unsigned bits;
    memcpy(&bits, &value, sizeof bits);
    bits = (bits + 0x800) & ~0xfffU;
    memcpy(&value, &bits, sizeof bits);
    return value;
}

/* See batchnorm_quotients.h. mean: of what the numerators are off. */
static divisor divisor_of(double root, float mean, precision intermediate) {
    divisor d = {.root = root, .mean = mean, .how = BY_FLOAT};
    if (intermediate == PRECISION_FLOAT) return d;
    double size = fabs((double)mean), inverse = 1 / root;
    if (!(root >= 0x1p-20 && root <= 0x1p20 && size <= 0x1p100)) inverse = NAN;
    d.fused = reciprocal_from(inverse, (float)inverse, FUSED_SLACK);
    d.cut = reciprocal_from(inverse, first_12_bits((float)inverse), CUT_SLACK);
    d.how = size >= 0x1p-30 ? BY_PRODUCT : BY_PRODUCT_OR_TINY;
    return d;
}

static divisor forward_divisor(const batchnorm_pass *p, size_t f) {
    double root = batchnorm_root(p->variance[f], &p->rule->forward, p->rule->intermediate);
    return divisor_of(root, p->mean[f], p->rule->intermediate);
}

static void forward_divisors(const channel_group *g, divisor *divisors) {
    for (size_t i = 0; i < g->channels; ++i) divisors[i] = forward_divisor(g->j->p, g->first + i);
}

static delta_terms terms_of(const batchnorm_pass *p, size_t f) {
    const double cancels = 0x1p-10;
    size_t count = p->count ? p->count : p->batch * p->spatial;
    delta_terms t = {.mean = p->mean[f], .scale = p->scales[f], .count = (double)count, .least = 0x1p-125F};
    t.root = batchnorm_root(p->variance[f], &p->rule->direct_term, p->rule->intermediate);
    t.inverse = 1 / t.root;
    if (p->constant) return t;
    t.variance_term = (double)p->variance_delta[f] * 2.;
    t.rate = t.variance_term / t.count;
    t.mean_term = (double)(p->mean_delta[f] / (float)count);
    t.of_first = (float)(t.inverse * cancels);
    t.least += (float)(fabs(t.mean_term) * cancels);
    return t;
}

/* ---- forward ---------------------------------------------------------------------------------------------------------------- */

/* Channels from..to of image b, with the group's divisors */
static void normalize_image(const channel_group *g, const divisor *divisors, size_t b, size_t from, size_t to) {
    const batchnorm_pass *p = g->j->p;
    size_t offset = (b * p->c + from) * p->spatial;
    g->j->variant->normalize(&(plane_normalization){.n = p->spatial,
                                                    .planes = to - from,
                                                    .by = divisors + (from - g->first),
                                                    .input = p->input + offset,
                                                    .scales = p->scales + from,
                                                    .biases = p->biases + from,
                                                    .x = at(p->x, offset),
                                                    .x_norm = at(p->x_norm, offset),
                                                    .output = at(p->output, offset)});
}

/* Planes begin..end of those of all images, as far as they are of the group */
static void infer_group(const channel_group *g, size_t begin, size_t end) {
    divisor divisors[CHUNK];
    forward_divisors(g, divisors);
    size_t c = g->j->p->c;
    for (size_t b = begin / c; b * c < end; ++b) {
        size_t from = b * c + g->first, to = from + g->channels;
        if (from < begin) from = begin;
        if (to > end) to = end;
        if (from < to) normalize_image(g, divisors, b, from - b * c, to - b * c);
    }
}

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Planes begin..end in the order of the memory */
static void infer_planes(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const job *j = context;
    size_t channels = j->p->c, within = begin / channels == (end - 1) / channels; /* one image */
    size_t first = within ? begin % channels : 0, last = within ? (end - 1) % channels + 1 : channels;
    for (; first < last; first += CHUNK) infer_group(&(channel_group){j, first, smaller(CHUNK, last - first)}, begin, end);
}

static void group_statistics(const channel_group *g) {
    const batchnorm_pass *p = g->j->p;
    float means[LARGEST_GROUP] = {0}, sums[LARGEST_GROUP] = {0};
    size_t n = p->batch * p->spatial;
    group planes = {g->channels, p->spatial, NULL};
    float scale = (float)(1. / (double)n), less = (float)(1. / (double)(n - 1));
    for (size_t b = 0; b < p->batch; ++b) {
        planes.next = p->input + offset_of(g, b + 1 < p->batch ? b + 1 : 0);
        g->j->variant->sum(p->input + offset_of(g, b), &planes, means);
    }
    for (size_t i = 0; i < g->channels; ++i) means[i] *= scale;
    for (size_t b = 0; b < p->batch; ++b) {
        planes.next = p->input + offset_of(g, b + 1 < p->batch ? b + 1 : b);
        g->j->variant->squares(p->input + offset_of(g, b), &planes, means, sums);
    }
    for (size_t i = 0; i < g->channels; ++i) {
        size_t f = g->first + i;
        p->mean[f] = means[i];
        p->variance[f] = sums[i] * (p->rule->normalize_variance == DENOMINATOR_N ? scale : less);
        p->kept[f] = sums[i] * (p->rule->keep_variance == DENOMINATOR_N ? scale : less);
    }
}

static void train_group(const channel_group *g) {
    divisor divisors[LARGEST_GROUP];
    group_statistics(g);
    forward_divisors(g, divisors);
    for (size_t b = g->j->p->batch; b-- > 0;) normalize_image(g, divisors, b, g->first, g->first + g->channels);
}

/* ---- backward --------------------------------------------------------------------------------------------------------------- */

/* Of the group's channels, see group_deltas */
typedef float delta_sums[4][LARGEST_VECTOR];

static void sum_deltas(const channel_group *g, delta_sums sums) {
    const batchnorm_pass *p = g->j->p;
    divisor divisors[LARGEST_VECTOR];
    forward_divisors(g, divisors);
    group_deltas d = {.group = {g->channels, p->spatial, NULL}, .by = divisors, .scales = p->scales + g->first};
    for (size_t k = 0; k < 4; ++k) d.sums[k] = sums[k];
    for (size_t b = 0; b < p->batch; ++b) {
        memset(sums[0], 0, sizeof sums[0]); /* the biases' sums begin with each image */
        size_t offset = offset_of(g, b);
        d.x = p->x + offset, d.x_norm = at(p->x_norm, offset), d.delta = p->input + offset;
        size_t next = offset_of(g, b + 1 < p->batch ? b + 1 : b);
        d.group.next = p->x + next, d.next_delta = p->input + next;
        g->j->variant->delta_sums(&d);
        for (size_t i = 0; p->bias_updates && i < g->channels; ++i) p->bias_updates[g->first + i] += sums[0][i];
    }
}

static void use_sums(const channel_group *g, delta_sums sums) {
    const batchnorm_pass *p = g->j->p;
    const epsilon_rule *e = &p->rule->statistic_terms;
    for (size_t i = 0; i < g->channels; ++i) {
        size_t f = g->first + i;
        p->scale_updates[f] += sums[1][i];
        if (p->constant) continue;
        p->mean_delta[f] = (float)((double)sums[2][i] * (-1. / batchnorm_root(p->variance[f], e, p->rule->intermediate)));
        double power = batchnorm_root_to_minus_3(p->variance[f], e, p->rule);
        p->variance_delta[f] = (float)((double)sums[3][i] * (-.5 * power));
    }
}

static void carry_group(const channel_group *g) {
    const batchnorm_pass *p = g->j->p;
    delta_terms terms[LARGEST_VECTOR];
    for (size_t i = 0; i < g->channels; ++i) terms[i] = terms_of(p, g->first + i);
    plane_deltas d = {.n = p->spatial, .planes = g->channels, .terms = terms, .constant = p->constant};
    for (size_t b = p->batch; b-- > 0;) {
        size_t offset = offset_of(g, b);
        d.x = p->x + offset, d.delta = p->input + offset, d.output = p->output + offset;
        g->j->variant->carry(&d);
    }
}

static void backward_group(const channel_group *g) {
    delta_sums sums = {{0}};
    sum_deltas(g, sums);
    use_sums(g, sums);
    carry_group(g);
}

/* ---- the passes ------------------------------------------------------------------------------------------------------------- */

/* Groups begin..end; the last one is cut into what the inner loops take */
static void over_groups(const job *j, size_t begin, size_t end, void (*take)(const channel_group *)) {
    size_t first = begin * j->width, last = smaller(end * j->width, j->p->c), width = j->width;
    while (first < last) {
        while (width > last - first && width > j->variant->lanes) width /= 2;
        size_t channels = smaller(width, last - first);
        take(&(channel_group){j, first, channels});
        first += channels;
    }
}

static void train_groups(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    over_groups(context, begin, end, train_group);
}

static void backward_groups(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    over_groups(context, begin, end, backward_group);
}

static void carry_groups(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    over_groups(context, begin, end, carry_group);
}

/* In groups of so many vectors, of fewer where there would be less than one for each thread */
static void in_groups(const batchnorm_pass *p, size_t columns, size_t work, parallel_body body) {
    size_t threads = get_num_threads();
    job j = {.p = p, .variant = chosen_variant()};
    while (columns > 1 && p->c < columns * j.variant->lanes * threads) columns /= 2;
    j.width = columns * j.variant->lanes;
    parallel_for_on(threads, (p->c + j.width - 1) / j.width, j.width * p->batch * p->spatial * work, body, &j);
}

void batchnorm_train_serial(const batchnorm_pass *p) {
    in_groups(p, VECTORS, 8, train_groups);
}

size_t batchnorm_constants_size(size_t c) {
    return c * (sizeof(divisor) / sizeof(float));
}

void batchnorm_constants(const batchnorm_pass *p, float *constants) {
    divisor *divisors = (divisor *)(void *)constants;
    for (size_t f = 0; f < p->c; ++f) divisors[f] = forward_divisor(p, f);
}

void batchnorm_infer_values(const batchnorm_pass *p, const float *constants, float *x, size_t n, size_t channel) {
    const divisor *by = (const divisor *)(const void *)constants + channel;
    plane_normalization plane = {.n = n, .planes = 1, .by = by, .input = x, .output = x};
    plane.scales = p->scales + channel, plane.biases = p->biases + channel;
    chosen_variant()->normalize(&plane);
}

void batchnorm_infer(const batchnorm_pass *p) {
    job j = {.p = p, .variant = chosen_variant()};
    parallel_for(p->batch * p->c, p->spatial * 4, infer_planes, &j);
}

void batchnorm_backward_serial(const batchnorm_pass *p) {
    in_groups(p, 1, 12, backward_groups);
}

void batchnorm_carry(const batchnorm_pass *p) {
    in_groups(p, 1, 6, carry_groups);
}
