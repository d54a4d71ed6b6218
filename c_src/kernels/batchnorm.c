/* Batch normalization at the speed of the memory: batchnorm_plain.c computed for WIDTH channels at a time, each in its own order.
 *
 * A float sum waits for its addition before, so one channel alone keeps a processor idle. The channels of a group are turned to lie
 * beside each other in a vector; a group goes through all steps of a pass while it is in the cache. Groups are independent. */
#include "../internal.h"
#include "variants.h"

typedef struct {
    const batchnorm_pass *p;
    const variant *variant;
    group group;
} job;

static const float *plane(const batchnorm_pass *p, const float *array, size_t b, size_t f) {
    return array + (b * p->c + f) * p->spatial;
}

/* The planes of a group; beyond the last channel that one again, whose results nobody takes */
static void point(const job *j, const float *array, size_t b, size_t first, const float **planes) {
    for (size_t i = 0; i < j->group.width; ++i) planes[i] = plane(j->p, array, b, first + i < j->p->c ? first + i : j->p->c - 1);
}

/* An array that may be NULL, at an offset */
static float *at(float *array, size_t offset) {
    return array ? array + offset : NULL;
}

/* Channel f of image b */
static void normalize_plane(const job *j, size_t b, size_t f, double root) {
    const batchnorm_pass *p = j->p;
    size_t offset = (b * p->c + f) * p->spatial;
    plane_normalization n = {.n = p->spatial,
                             .input = p->input + offset,
                             .x = at(p->x, offset),
                             .x_norm = at(p->x_norm, offset),
                             .output = p->output + offset,
                             .mean = p->mean[f],
                             .scale = p->scales[f],
                             .bias = p->biases[f],
                             .root = root,
                             .intermediate = p->rule->intermediate};
    j->variant->normalize(&n);
}

static double forward_root(const batchnorm_pass *p, size_t f) {
    return batchnorm_root(p->variance[f], &p->rule->forward, p->rule->intermediate);
}

static void normalize_group(const job *j, size_t first, size_t end) {
    double roots[WIDTH];
    for (size_t f = first; f < end; ++f) roots[f - first] = forward_root(j->p, f);
    for (size_t b = 0; b < j->p->batch; ++b)
        for (size_t f = first; f < end; ++f) normalize_plane(j, b, f, roots[f - first]);
}

/* Planes begin..end in the order of the memory */
static void infer_planes(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const job *j = context;
    for (size_t i = begin; i < end; ++i) normalize_plane(j, i / j->p->c, i % j->p->c, forward_root(j->p, i % j->p->c));
}

static void group_statistics(const job *j, size_t first, size_t end) {
    const batchnorm_pass *p = j->p;
    const float *x[WIDTH];
    float means[WIDTH] = {0}, squares[WIDTH] = {0};
    size_t n = p->batch * p->spatial;
    float scale = (float)(1. / (double)n), less = (float)(1. / (double)(n - 1));
    for (size_t b = 0; b < p->batch; ++b) {
        point(j, p->input, b, first, x);
        j->variant->sum(x, &j->group, means);
    }
    for (size_t i = 0; i < j->group.width; ++i) means[i] *= scale;
    for (size_t b = 0; b < p->batch; ++b) {
        point(j, p->input, b, first, x);
        j->variant->squares(x, &j->group, means, squares);
    }
    for (size_t f = first; f < end; ++f) {
        p->mean[f] = means[f - first];
        p->variance[f] = squares[f - first] * (p->rule->normalize_variance == DENOMINATOR_N ? scale : less);
        p->kept[f] = squares[f - first] * (p->rule->keep_variance == DENOMINATOR_N ? scale : less);
    }
}

static void train_groups(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const job *j = context;
    for (size_t g = begin; g < end; ++g) {
        size_t first = g * j->group.width, last = first + j->group.width < j->p->c ? first + j->group.width : j->p->c;
        group_statistics(j, first, last);
        normalize_group(j, first, last);
    }
}

static void group_sums(const job *j, size_t first, size_t end) {
    const batchnorm_pass *p = j->p;
    const float *x[WIDTH], *x_norm[WIDTH], *delta[WIDTH];
    group_deltas d = {.group = j->group, .x = x, .x_norm = x_norm, .delta = delta};
    for (size_t i = 0; i < j->group.width; ++i) {
        size_t f = first + i < p->c ? first + i : p->c - 1;
        d.means[i] = p->mean[f], d.scales[i] = p->scales[f];
    }
    for (size_t b = 0; b < p->batch; ++b) {
        point(j, p->x, b, first, x);
        point(j, p->x_norm, b, first, x_norm);
        point(j, p->input, b, first, delta);
        for (size_t i = 0; i < j->group.width; ++i) d.sums[0][i] = 0; /* the biases' sums begin with each image */
        j->variant->delta_sums(&d);
        for (size_t f = first; p->bias_updates && f < end; ++f) p->bias_updates[f] += d.sums[0][f - first];
    }
    const epsilon_rule *e = &p->rule->statistic_terms;
    for (size_t f = first; f < end; ++f) {
        p->scale_updates[f] += d.sums[1][f - first];
        if (p->constant) continue;
        p->mean_delta[f] = (float)((double)d.sums[2][f - first] * (-1. / batchnorm_root(p->variance[f], e, p->rule->intermediate)));
        double power = batchnorm_root_to_minus_3(p->variance[f], e, p->rule->intermediate);
        p->variance_delta[f] = (float)((double)d.sums[3][f - first] * (-.5 * power));
    }
}

static void carry_group(const job *j, size_t first, size_t end) {
    const batchnorm_pass *p = j->p;
    size_t count = p->batch * p->spatial;
    plane_delta group[WIDTH];
    for (size_t f = first; f < end; ++f) {
        plane_delta d = {.n = p->spatial, .mean = p->mean[f], .scale = p->scales[f], .count = (double)count};
        d.root = batchnorm_root(p->variance[f], &p->rule->direct_term, p->rule->intermediate);
        d.constant = p->constant;
        if (!p->constant) {
            d.variance_term = (double)p->variance_delta[f] * 2.;
            d.mean_term = (double)(p->mean_delta[f] / (float)count);
        }
        group[f - first] = d;
    }
    for (size_t b = 0; b < p->batch; ++b) {
        for (size_t f = first; f < end; ++f) {
            size_t offset = (b * p->c + f) * p->spatial;
            plane_delta *d = &group[f - first];
            d->x = p->x + offset, d->delta = p->input + offset, d->output = p->output + offset;
            j->variant->carry(d);
        }
    }
}

static void backward_groups(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const job *j = context;
    for (size_t g = begin; g < end; ++g) {
        size_t first = g * j->group.width, last = first + j->group.width < j->p->c ? first + j->group.width : j->p->c;
        group_sums(j, first, last);
        carry_group(j, first, last);
    }
}

static void over_groups(const batchnorm_pass *p, size_t width, size_t work, parallel_body body) {
    size_t threads = get_num_threads();
    if (p->c < width * threads) width = WIDTH / 2;
    job j = {p, chosen_variant(), {width, p->spatial}};
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
