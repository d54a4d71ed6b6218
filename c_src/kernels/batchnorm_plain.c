/* Batch normalization, one loop a formula: the specification of batchnorm.c, and the order of every sum: batch, then pixel
 * (pjreddie/darknet src/blas.c, src/batchnorm_layer.c). n = batch*spatial; eps is the rule's epsilon for that step. */
#include <math.h>

#include "kernels.h"

/* sqrt(v + eps) or sqrt(v) + eps. precision double: the root is taken and the outer sum made in double, while a float literal
 * inside is added in float, as C promotes. precision float: all in float, as the float overloads of C++ do. */
double batchnorm_root(float v, const epsilon_rule *e, precision p) {
    float value = (float)e->value;
    if (p == PRECISION_FLOAT) return (double)(e->side == SIDE_INSIDE ? sqrtf(v + value) : sqrtf(v) + value);
    double wide = e->literal == LITERAL_FLOAT ? (double)value : e->value;
    if (e->side == SIDE_OUTSIDE) return sqrt((double)v) + wide;
    return e->literal == LITERAL_FLOAT ? sqrt((double)(v + value)) : sqrt((double)v + wide);
}

/* (v + eps)^-1.5, or the same of a root with its epsilon outside */
double batchnorm_root_to_minus_3(float v, const epsilon_rule *e, precision p) {
    if (e->side == SIDE_OUTSIDE) return pow(batchnorm_root(v, e, p), -3);
    float value = (float)e->value;
    if (p == PRECISION_FLOAT) return (double)powf(v + value, -1.5F);
    return e->literal == LITERAL_FLOAT ? pow((double)(v + value), -1.5) : pow((double)v + e->value, -1.5);
}

static size_t floats_of(const batchnorm_pass *p) {
    return p->batch * p->c * p->spatial;
}

/* The channel of element i */
static size_t channel(const batchnorm_pass *p, size_t i) {
    return i / p->spatial % p->c;
}

/* mean[f] = (float)(1/n) * sum of x */
static void mean_plain(const batchnorm_pass *p) {
    float scale = (float)(1. / (double)(p->batch * p->spatial));
    for (size_t f = 0; f < p->c; ++f) p->mean[f] = 0;
    for (size_t i = 0; i < floats_of(p); ++i) p->mean[channel(p, i)] += p->input[i];
    for (size_t f = 0; f < p->c; ++f) p->mean[f] *= scale;
}

/* sum of (x - mean[f])^2: the difference in float, its square and the sum in double, each sum rounded to float; then
 * * (float)(1/(n - 1)) or * (float)(1/n). n = 1 under n - 1 gives 0 * inf = NaN. */
static void variance_plain(const batchnorm_pass *p, denominator d, float *variance) {
    size_t n = p->batch * p->spatial;
    float scale = (float)(1. / (double)(d == DENOMINATOR_N ? n : n - 1));
    for (size_t f = 0; f < p->c; ++f) variance[f] = 0;
    for (size_t i = 0; i < floats_of(p); ++i) {
        size_t f = channel(p, i);
        double off = (double)(p->input[i] - p->mean[f]);
        variance[f] = (float)((double)variance[f] + off * off);
    }
    for (size_t f = 0; f < p->c; ++f) variance[f] *= scale;
}

/* (x - mean[f]) / root[f], the quotient in the rule's intermediate type */
static float quotient(const batchnorm_pass *p, float x, size_t f) {
    double r = batchnorm_root(p->variance[f], &p->rule->forward, p->rule->intermediate);
    float off = x - p->mean[f];
    return p->rule->intermediate == PRECISION_FLOAT ? off / (float)r : (float)((double)off / r);
}

/* The quotient * scales[f], then + biases[f]: two roundings */
static void normalize_plain(const batchnorm_pass *p) {
    for (size_t i = 0; i < floats_of(p); ++i) {
        size_t f = channel(p, i);
        float x = p->input[i], x_norm = quotient(p, x, f);
        if (p->x) p->x[i] = x;
        if (p->x_norm) p->x_norm[i] = x_norm;
        if (p->output) p->output[i] = x_norm * p->scales[f] + p->biases[f];
    }
}

void batchnorm_train_plain(const batchnorm_pass *p) {
    mean_plain(p);
    variance_plain(p, p->rule->keep_variance, p->kept);
    variance_plain(p, p->rule->normalize_variance, p->variance);
    normalize_plain(p);
}

void batchnorm_infer_plain(const batchnorm_pass *p) {
    normalize_plain(p);
}

/* bias_updates[f] += sum over the pixels of one image, image after image; scale_updates[f] += sum of delta * x_norm */
static void updates_plain(const batchnorm_pass *p) {
    for (size_t f = 0; f < p->c; ++f) {
        float product = 0;
        for (size_t b = 0; b < p->batch; ++b) {
            size_t first = (b * p->c + f) * p->spatial;
            float sum = 0;
            for (size_t i = first; i < first + p->spatial; ++i) {
                sum += p->input[i];
                product += p->input[i] * (p->x_norm ? p->x_norm[i] : quotient(p, p->x[i], f));
            }
            if (p->bias_updates) p->bias_updates[f] += sum;
        }
        p->scale_updates[f] += product;
    }
}

/* Of the scaled delta, which stands in output:
 * mean_delta[f] = -1/root[f] * sum of delta;  variance_delta[f] = -.5 * (variance + eps)^-1.5 * sum of delta * (x - mean) */
static void statistics_deltas_plain(const batchnorm_pass *p) {
    for (size_t f = 0; f < p->c; ++f) p->mean_delta[f] = p->variance_delta[f] = 0;
    for (size_t i = 0; i < floats_of(p); ++i) {
        size_t f = channel(p, i);
        p->mean_delta[f] += p->output[i];
        p->variance_delta[f] += p->output[i] * (p->x[i] - p->mean[f]);
    }
    const epsilon_rule *e = &p->rule->statistic_terms;
    for (size_t f = 0; f < p->c; ++f) {
        p->mean_delta[f] = (float)((double)p->mean_delta[f] * (-1. / batchnorm_root(p->variance[f], e, p->rule->intermediate)));
        double power = batchnorm_root_to_minus_3(p->variance[f], e, p->rule->intermediate);
        p->variance_delta[f] = (float)((double)p->variance_delta[f] * (-.5 * power));
    }
}

/* delta*1/root + variance_delta*2*(x - mean)/n + mean_delta/n, left to right in double, the last quotient in float */
static void input_delta_plain(const batchnorm_pass *p) {
    size_t n = p->batch * p->spatial;
    for (size_t i = 0; i < floats_of(p); ++i) {
        size_t f = channel(p, i);
        double term = (double)p->output[i] / batchnorm_root(p->variance[f], &p->rule->direct_term, p->rule->intermediate);
        if (!p->constant)
            term = term + (double)p->variance_delta[f] * 2. * (double)(p->x[i] - p->mean[f]) / (double)n +
                   (double)(p->mean_delta[f] / (float)n);
        p->output[i] = (float)term;
    }
}

void batchnorm_backward_plain(const batchnorm_pass *p) {
    updates_plain(p);
    for (size_t i = 0; i < floats_of(p); ++i) p->output[i] = p->input[i] * p->scales[channel(p, i)];
    if (!p->constant) statistics_deltas_plain(p);
    input_delta_plain(p);
}
