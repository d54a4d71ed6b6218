/* Sums of a batchnorm for those who merge or measure them, in double. Eight partial sums take turns through batch and pixels and are
 * added in order: nothing depends on the number of threads or on the processor. Channels are independent. */
#include "../internal.h"

enum { LANES = 8 };

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

static void moments_of_channels(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const job *j = context;
    const batchnorm_pass *p = j->p;
    size_t n = p->batch * p->spatial;
    for (size_t f = begin; f < end; ++f) {
        double sums[LANES] = {0}, squares[LANES] = {0};
        for (size_t b = 0; b < p->batch; ++b) add_values(p->input + plane(p, b, f), p->spatial, sums);
        double mean = n ? added(sums) / (double)n : 0;
        for (size_t b = 0; b < p->batch; ++b) add_squares(p->input + plane(p, b, f), p->spatial, mean, squares);
        j->values[1 + f] = mean;
        j->values[1 + p->c + f] = added(squares);
    }
}

void batchnorm_moments(const batchnorm_pass *p, double *values) {
    job j = {p, values};
    values[0] = (double)(p->batch * p->spatial);
    parallel_for(p->c, p->batch * p->spatial * 4, moments_of_channels, &j);
}

static void sums_of_channels(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const job *j = context;
    const batchnorm_pass *p = j->p;
    for (size_t f = begin; f < end; ++f) {
        double deltas[LANES] = {0}, products[LANES] = {0};
        for (size_t b = 0; b < p->batch; ++b) {
            size_t at = plane(p, b, f);
            add_values(p->input + at, p->spatial, deltas);
            add_products(p->input + at, p->x + at, p->spatial, (double)p->mean[f], products);
        }
        j->values[f] = added(deltas);
        j->values[p->c + f] = added(products);
    }
}

void batchnorm_delta_sums(const batchnorm_pass *p, double *sums) {
    job j = {p, sums};
    parallel_for(p->c, p->batch * p->spatial * 4, sums_of_channels, &j);
}
