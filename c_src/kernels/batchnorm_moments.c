/* Sums of a batchnorm in double, for those who merge or measure them, and for rules that sum so. Eight partial sums take turns through batch and pixels and are
 * added in order: nothing depends on the number of threads or on the processor. Channels are independent. */
#include "../internal.h"
#include "batchnorm_root.h"
#include "kernels.h"

enum { LANES = 8, CHUNK = 256 }; /* a multiple of it */

typedef struct {
    const batchnorm_pass *p;
    double *values;
} job;

static double added(const double *lanes) {
    double sum = lanes[0];
    for (size_t i = 1; i < LANES; ++i) sum += lanes[i];
    return sum;
}

static void add_values(const float *x, size_t n, double *lanes) {
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t k = 0; k < LANES; ++k) lanes[k] += (double)x[i + k];
    for (size_t k = 0; i < n; ++i, ++k) lanes[k] += (double)x[i];
}

static void add_squares(const float *x, size_t n, double mean, double *lanes) {
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t k = 0; k < LANES; ++k) {
            double off = (double)x[i + k] - mean;
            lanes[k] += off * off;
        }
    for (size_t k = 0; i < n; ++i, ++k) lanes[k] += ((double)x[i] - mean) * ((double)x[i] - mean);
}

static void add_products(const float *delta, const float *x, size_t n, double mean, double *lanes) {
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t k = 0; k < LANES; ++k) lanes[k] += (double)delta[i + k] * ((double)x[i + k] - mean);
    for (size_t k = 0; i < n; ++i, ++k) lanes[k] += (double)delta[i] * ((double)x[i] - mean);
}

static size_t plane(const batchnorm_pass *p, size_t b, size_t f) {
    return (b * p->c + f) * p->spatial;
}

static double moments_of(const batchnorm_pass *p, size_t f, double *squares) {
    double sums[LANES] = {0}, lanes[LANES] = {0};
    size_t n = p->batch * p->spatial;
    for (size_t b = 0; b < p->batch; ++b) add_values(p->input + plane(p, b, f), p->spatial, sums);
    double mean = n ? added(sums) / (double)n : 0;
    for (size_t b = 0; b < p->batch; ++b) add_squares(p->input + plane(p, b, f), p->spatial, mean, lanes);
    *squares = added(lanes);
    return mean;
}

static void moments_of_channels(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const job *j = context;
    const batchnorm_pass *p = j->p;
    for (size_t f = begin; f < end; ++f) j->values[1 + f] = moments_of(p, f, &j->values[1 + p->c + f]);
}

void batchnorm_moments(const batchnorm_pass *p, double *values) {
    job j = {p, values};
    values[0] = (double)(p->batch * p->spatial);
    parallel_for(p->c, p->batch * p->spatial * 4, moments_of_channels, &j);
}

static double delta_sum_of(const batchnorm_pass *p, size_t f, double *products) {
    double deltas[LANES] = {0}, lanes[LANES] = {0};
    for (size_t b = 0; b < p->batch; ++b) {
        size_t at = plane(p, b, f);
        add_values(p->input + at, p->spatial, deltas);
        add_products(p->input + at, p->x + at, p->spatial, (double)p->mean[f], lanes);
    }
    *products = added(lanes);
    return added(deltas);
}

static void sums_of_channels(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const job *j = context;
    const batchnorm_pass *p = j->p;
    for (size_t f = begin; f < end; ++f) j->values[f] = delta_sum_of(p, f, &j->values[p->c + f]);
}

void batchnorm_delta_sums(const batchnorm_pass *p, double *sums) {
    job j = {p, sums};
    parallel_for(p->c, p->batch * p->spatial * 4, sums_of_channels, &j);
}

/* x_norm of n values, as floats in memory: GCC 12 leaves the rounding out where it makes vectors of a sum of such quotients. */
static void make_quotients(const float *x, size_t n, float mean, double root, precision type, float *x_norm) {
    if (type == PRECISION_FLOAT)
        for (size_t i = 0; i < n; ++i) x_norm[i] = (x[i] - mean) / (float)root;
    else
        for (size_t i = 0; i < n; ++i) x_norm[i] = (float)((double)(x[i] - mean) / root);
}

/* Sum of delta * x_norm: the same bits whether x_norm is there or made of x */
static double normal_products_of(const batchnorm_pass *p, size_t f) {
    double lanes[LANES] = {0}, root = batchnorm_root(p->variance[f], &p->rule->forward, p->rule->intermediate);
    float made[CHUNK];
    for (size_t b = 0; b < p->batch; ++b)
        for (size_t i = 0; i < p->spatial; i += CHUNK) {
            size_t n = p->spatial - i < CHUNK ? p->spatial - i : CHUNK, at = plane(p, b, f) + i;
            if (!p->x_norm) make_quotients(p->x + at, n, p->mean[f], root, p->rule->intermediate, made);
            add_products(p->input + at, p->x_norm ? p->x_norm + at : made, n, 0, lanes);
        }
    return added(lanes);
}

static void scale_sums_of_channels(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const job *j = context;
    for (size_t f = begin; f < end; ++f) j->values[f] = normal_products_of(j->p, f);
}

void batchnorm_scale_sums(const batchnorm_pass *p, double *sums) {
    job j = {p, sums};
    parallel_for(p->c, p->batch * p->spatial * 4, scale_sums_of_channels, &j);
}

/* ---- rules that sum in double ----------------------------------------------------------------------------------------------- */

static void statistics_of_channels(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const batchnorm_pass *p = context;
    double n = (double)(p->batch * p->spatial);
    for (size_t f = begin; f < end; ++f) {
        double squares, mean = moments_of(p, f, &squares);
        p->mean[f] = (float)mean;
        p->variance[f] = (float)(squares / (p->rule->normalize_variance == DENOMINATOR_N ? n : n - 1));
        p->kept[f] = (float)(squares / (p->rule->keep_variance == DENOMINATOR_N ? n : n - 1));
    }
}

void batchnorm_train_double(const batchnorm_pass *p) {
    batchnorm_pass pass = *p;
    parallel_for(p->c, p->batch * p->spatial * 4, statistics_of_channels, &pass);
    batchnorm_infer(p);
}

/* A delta is scaled before it is summed where sums are in float, and the sum here. */
void batchnorm_take_sums(const batchnorm_pass *p, size_t f, double deltas, double products) {
    const batchnorm_rule *rule = p->rule;
    double scale = (double)p->scales[f], root = batchnorm_root(p->variance[f], &rule->statistic_terms, rule->intermediate);
    double power = batchnorm_root_to_minus_3(p->variance[f], &rule->statistic_terms, rule);
    p->mean_delta[f] = (float)(deltas * scale * (-1. / root));
    p->variance_delta[f] = (float)(products * scale * (-.5 * power));
}

static void deltas_of_channels(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const batchnorm_pass *p = context;
    for (size_t f = begin; f < end; ++f) {
        double products, sum = delta_sum_of(p, f, &products);
        p->scale_updates[f] += (float)normal_products_of(p, f);
        if (p->bias_updates) p->bias_updates[f] += (float)sum;
        if (!p->constant) batchnorm_take_sums(p, f, sum, products);
    }
}

void batchnorm_backward_double(const batchnorm_pass *p) {
    batchnorm_pass pass = *p;
    parallel_for(p->c, p->batch * p->spatial * 4, deltas_of_channels, &pass);
    batchnorm_carry(p);
}
