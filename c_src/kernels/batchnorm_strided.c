/* Batch normalization summed in strided parts, in float: what the forks' CUDA kernels compute, on the CPU. A channel's parts lie beside
 * each other and are independent, so its sums run over them in vectors; channels are independent. */
#include <string.h>

#include "../internal.h"
#include "device_batchnorm.h"

/* Parts beyond the plane are 0: adding them changes no bit, since no sum from 0 is -0 */
static size_t parts_of(const batchnorm_pass *p) {
    return p->spatial < DEVICE_PARTS ? p->spatial : DEVICE_PARTS;
}

/* ---- rows: at most DEVICE_PARTS pixels of a plane, computed into arrays of their own, since those of a pass may be one another ---- */

typedef void (*over_row)(const batchnorm_pass *p, const void *constants, size_t first, size_t n);

static void over_rows(const batchnorm_pass *p, size_t f, over_row take, const void *constants) {
    for (size_t b = 0; b < p->batch; ++b) {
        size_t plane = (b * p->c + f) * p->spatial;
        for (size_t i = 0; i < p->spatial; i += DEVICE_PARTS) {
            size_t left = p->spatial - i;
            take(p, constants, plane + i, left < DEVICE_PARTS ? left : DEVICE_PARTS);
        }
    }
}

/* ---- forward -------------------------------------------------------------------------------------------------------------------- */

typedef struct {
    float mean, root, scale, bias;
} affine;

static void normalize_row(const batchnorm_pass *p, const void *constants, size_t first, size_t n) {
    affine a = *(const affine *)constants;
    float normalized[DEVICE_PARTS], scaled[DEVICE_PARTS];
    const float *input = p->input + first;
    for (size_t i = 0; i < n; ++i) {
        normalized[i] = device_normalized(input[i], a.mean, a.root);
        scaled[i] = device_scaled(normalized[i], a.scale, a.bias);
    }
    if (p->x) memmove(p->x + first, input, n * sizeof *input);
    if (p->x_norm) memcpy(p->x_norm + first, normalized, n * sizeof *normalized);
    if (p->output) memcpy(p->output + first, scaled, n * sizeof *scaled);
}

static void moments_of(const batchnorm_pass *p, size_t f) {
    size_t n = p->batch * p->spatial, step = p->c * p->spatial, count = parts_of(p);
    float parts[DEVICE_PARTS];
    const float *x = p->input + f * p->spatial;
    device_sums(x, p->batch, step, p->spatial, 0, count, parts);
    p->mean[f] = device_moment(device_total(0, parts, count), n);
    device_squares(x, p->batch, step, p->spatial, p->mean[f], 0, count, parts);
    float squares = device_total(0, parts, count);
    p->variance[f] = device_moment(squares, p->rule->normalize_variance == DENOMINATOR_N ? n : n - 1);
    p->kept[f] = device_moment(squares, p->rule->keep_variance == DENOMINATOR_N ? n : n - 1);
}

static void train_channels(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const batchnorm_pass *p = context;
    for (size_t f = begin; f < end; ++f) {
        moments_of(p, f);
        affine a = {p->mean[f], device_root(p->variance[f], &p->rule->forward), p->scales[f], p->biases[f]};
        over_rows(p, f, normalize_row, &a);
    }
}

void batchnorm_train_strided(const batchnorm_pass *p) {
    batchnorm_pass pass = *p;
    parallel_for(p->c, p->batch * p->spatial * 6, train_channels, &pass);
}

/* ---- backward ------------------------------------------------------------------------------------------------------------------- */

static void sum_deltas(const batchnorm_pass *p, size_t f) {
    float parts[4][DEVICE_PARTS];
    size_t count = parts_of(p), first = f * p->spatial;
    const batchnorm_rule *rule = p->rule;
    device_channel c = {.x = p->x + first, .x_norm = p->x_norm ? p->x_norm + first : NULL, .delta = p->input + first};
    c.batch = p->batch, c.step = p->c * p->spatial, c.spatial = p->spatial;
    c.mean = p->mean[f], c.scale = p->scales[f], c.root = device_root(p->variance[f], &rule->forward);
    device_deltas(&c, 0, count, &(device_delta_parts){parts[0], parts[1], parts[2], parts[3]});
    if (p->bias_updates) p->bias_updates[f] = device_total(p->bias_updates[f], parts[0], count);
    p->scale_updates[f] = device_total(p->scale_updates[f], parts[1], count);
    if (p->constant) return;
    const epsilon_rule *e = &rule->statistic_terms;
    float v = p->variance[f];
    p->mean_delta[f] = device_mean_delta(device_total(0, parts[2], count), device_root(v, e));
    p->variance_delta[f] = device_variance_delta(device_total(0, parts[3], count), device_power(v, e), rule->products);
}

static void carry_row(const batchnorm_pass *p, const void *constants, size_t first, size_t n) {
    device_terms t = *(const device_terms *)constants;
    float row[DEVICE_PARTS];
    for (size_t i = 0; i < n; ++i) row[i] = device_delta(&t, p->x[first + i], p->input[first + i]);
    memcpy(p->output + first, row, n * sizeof *row);
}

static void carry_deltas(const batchnorm_pass *p, size_t f) {
    device_terms t = {
        .scale = p->scales[f], .mean = p->mean[f], .n = (float)(p->batch * p->spatial), .products = p->rule->products};
    t.root = device_root(p->variance[f], &p->rule->direct_term), t.constant = p->constant;
    if (!p->constant) t.variance_delta = p->variance_delta[f], t.mean_delta = p->mean_delta[f];
    over_rows(p, f, carry_row, &t);
}

static void deltas_of_channels(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    for (size_t f = begin; f < end; ++f) {
        sum_deltas(context, f);
        carry_deltas(context, f);
    }
}

void batchnorm_backward_strided(const batchnorm_pass *p) {
    batchnorm_pass pass = *p;
    parallel_for(p->c, p->batch * p->spatial * 12, deltas_of_channels, &pass);
}
