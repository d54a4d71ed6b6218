/* Batch normalization whose sums are in double, one loop a formula: the specification of batchnorm_moments.c. */
#include "batchnorm_root.h"
#include "kernels.h"

enum { SUMS = 8 };

/* What value i, of channel f, adds to a sum */
typedef double (*term)(const batchnorm_pass *p, size_t i, size_t f, double mean);

/* Pixel s of each image in turn goes to sum s % 8; the eight are added in order. */
static double sum_of(const batchnorm_pass *p, size_t f, double mean, term add) {
    double sums[SUMS] = {0};
    for (size_t b = 0; b < p->batch; ++b)
        for (size_t s = 0; s < p->spatial; ++s) sums[s % SUMS] += add(p, (b * p->c + f) * p->spatial + s, f, mean);
    for (size_t k = 1; k < SUMS; ++k) sums[0] += sums[k];
    return sums[0];
}

static double value(const batchnorm_pass *p, size_t i, size_t f, double mean) {
    (void)f, (void)mean;
    return (double)p->input[i];
}

static double square(const batchnorm_pass *p, size_t i, size_t f, double mean) {
    (void)f;
    return ((double)p->input[i] - mean) * ((double)p->input[i] - mean);
}

static double product(const batchnorm_pass *p, size_t i, size_t f, double mean) {
    (void)f;
    return (double)p->input[i] * ((double)p->x[i] - mean);
}

static double normal_product(const batchnorm_pass *p, size_t i, size_t f, double mean) {
    (void)mean;
    double root = batchnorm_root(p->variance[f], &p->rule->forward, p->rule->intermediate);
    float off = p->x[i] - p->mean[f];
    float quotient = p->rule->intermediate == PRECISION_FLOAT ? off / (float)root : (float)((double)off / root);
    return (double)p->input[i] * (double)(p->x_norm ? p->x_norm[i] : quotient);
}

/* mean = sum of x / n; the variances: sum of (x - mean)^2 / n or / (n - 1), with the mean before it is rounded */
void batchnorm_moments_plain(const batchnorm_pass *p) {
    double n = (double)(p->batch * p->spatial);
    for (size_t f = 0; f < p->c; ++f) {
        double mean = sum_of(p, f, 0, value) / n, squares = sum_of(p, f, mean, square);
        p->mean[f] = (float)mean;
        p->variance[f] = (float)(squares / (p->rule->normalize_variance == DENOMINATOR_N ? n : n - 1));
        p->kept[f] = (float)(squares / (p->rule->keep_variance == DENOMINATOR_N ? n : n - 1));
    }
}

/* bias_updates[f] += sum of delta; scale_updates[f] += sum of delta * x_norm; mean_delta[f] and variance_delta[f] as with any
 * summation, of sums that are multiplied by the scale */
void batchnorm_delta_sums_plain(const batchnorm_pass *p) {
    const batchnorm_rule *rule = p->rule;
    for (size_t f = 0; f < p->c; ++f) {
        double sum = sum_of(p, f, 0, value), products = sum_of(p, f, (double)p->mean[f], product);
        p->scale_updates[f] += (float)sum_of(p, f, 0, normal_product);
        if (p->bias_updates) p->bias_updates[f] += (float)sum;
        if (p->constant) continue;
        double scale = (double)p->scales[f], root = batchnorm_root(p->variance[f], &rule->statistic_terms, rule->intermediate);
        double power = batchnorm_root_to_minus_3(p->variance[f], &rule->statistic_terms, rule);
        p->mean_delta[f] = (float)(sum * scale * (-1. / root));
        p->variance_delta[f] = (float)(products * scale * (-.5 * power));
    }
}
