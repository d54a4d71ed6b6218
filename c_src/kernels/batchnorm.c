/* Batch normalization, one function a formula. Order of every sum: batch, then pixel (pjreddie/darknet src/blas.c, batchnorm_layer.c).
 *
 * e: batch, c, spatial; n = batch*spatial. eps() below is the rule's epsilon for that step. */
#include <math.h>

#include "../internal.h"
#include "kernels.h"

/* sqrt(v + eps) or sqrt(v) + eps. precision double: the root is taken and the outer sum made in double, while a float literal
 * inside is added in float, as C promotes. precision float: all in float, as the float overloads of C++ do. */
static double root(float v, const epsilon_rule *e, precision p) {
    float value = (float)e->value;
    if (p == PRECISION_FLOAT) return (double)(e->side == SIDE_INSIDE ? sqrtf(v + value) : sqrtf(v) + value);
    double wide = e->literal == LITERAL_FLOAT ? (double)value : e->value;
    if (e->side == SIDE_OUTSIDE) return sqrt((double)v) + wide;
    return e->literal == LITERAL_FLOAT ? sqrt((double)(v + value)) : sqrt((double)v + wide);
}

/* (v + eps)^-1.5, or the same of a root with its epsilon outside */
static double root_to_minus_3(float v, const epsilon_rule *e, precision p) {
    if (e->side == SIDE_OUTSIDE) return pow(root(v, e, p), -3);
    float value = (float)e->value;
    if (p == PRECISION_FLOAT) return (double)powf(v + value, -1.5F);
    return e->literal == LITERAL_FLOAT ? pow((double)(v + value), -1.5) : pow((double)v + e->value, -1.5);
}

typedef struct {
    extent e;
    const float *x, *mean, *variance, *delta, *mean_delta, *variance_delta, *scales, *biases;
    const batchnorm_rule *rule;
    float *out, *copy;
} job;

static size_t plane(const extent *e, size_t b, size_t f) {
    return (b * e->c + f) * e->spatial;
}

/* mean[f] = (float)(1/n) * sum of x */
static void mean_channels(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const job *j = context;
    float scale = (float)(1. / (double)(j->e.batch * j->e.spatial));
    for (size_t f = begin; f < end; ++f) {
        float sum = 0;
        for (size_t b = 0; b < j->e.batch; ++b) {
            const float *x = j->x + plane(&j->e, b, f);
            for (size_t i = 0; i < j->e.spatial; ++i) sum += x[i];
        }
        j->out[f] = sum * scale;
    }
}

void mean_cpu(const float *x, extent e, float *mean) {
    job j = {.e = e, .x = x, .out = mean};
    parallel_for(e.c, e.batch * e.spatial, mean_channels, &j);
}

/* sums[f] += (x - mean[f])^2: the difference in float, its square and the sum in double, each sum rounded to float */
static void square_channels(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const job *j = context;
    for (size_t f = begin; f < end; ++f) {
        float sum = 0;
        for (size_t b = 0; b < j->e.batch; ++b) {
            const float *x = j->x + plane(&j->e, b, f);
            for (size_t i = 0; i < j->e.spatial; ++i) {
                double d = (double)(x[i] - j->mean[f]);
                sum = (float)((double)sum + d * d);
            }
        }
        j->out[f] = sum;
    }
}

void square_deviations_cpu(const float *x, const float *mean, extent e, float *sums) {
    job j = {.e = e, .x = x, .mean = mean, .out = sums};
    parallel_for(e.c, e.batch * e.spatial * 4, square_channels, &j);
}

/* variance[f] = sums[f] * (float)(1/(n - 1)) or * (float)(1/n); n = 1 under n - 1 gives 0 * inf = NaN */
void scale_variance(const float *sums, size_t c, size_t n, denominator d, float *variance) {
    float scale = (float)(1. / (double)(d == DENOMINATOR_N ? n : n - 1));
    for (size_t f = 0; f < c; ++f) variance[f] = sums[f] * scale;
}

/* rolling *= keep; rolling += add * value: two roundings and one for the product */
void move_rolling(float *rolling, const float *value, size_t c, const batchnorm_rule *rule) {
    scal_cpu(c, (float)rule->rolling_keep, rolling);
    axpy_cpu(c, (float)rule->rolling_add, value, rolling);
}

/* x = (x - mean[f]) / root[f], the quotient in the rule's intermediate type */
static void normalize_channels(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const job *j = context;
    for (size_t f = begin; f < end; ++f) {
        double r = root(j->variance[f], &j->rule->forward, j->rule->intermediate);
        float mean = j->mean[f], narrow = (float)r;
        for (size_t b = 0; b < j->e.batch; ++b) {
            float *x = j->out + plane(&j->e, b, f);
            if (j->rule->intermediate == PRECISION_FLOAT)
                for (size_t i = 0; i < j->e.spatial; ++i) x[i] = (x[i] - mean) / narrow;
            else
                for (size_t i = 0; i < j->e.spatial; ++i) x[i] = (float)((double)(x[i] - mean) / r);
            if (!j->copy) continue;
            float *x_norm = j->copy + plane(&j->e, b, f);
            for (size_t i = 0; i < j->e.spatial; ++i) x_norm[i] = x[i];
        }
    }
}

/* x in place; x_norm overwritten with the same values, or NULL */
void normalize_cpu(float *x, const float *mean, const float *variance, extent e, const batchnorm_rule *rule, float *x_norm) {
    job j = {.e = e, .mean = mean, .variance = variance, .rule = rule, .out = x, .copy = x_norm};
    parallel_for(e.c, e.batch * e.spatial * 4, normalize_channels, &j);
}

/* x = x * scales[f], then + biases[f] where there are any: two roundings */
static void scale_channels(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const job *j = context;
    for (size_t f = begin; f < end; ++f) {
        float scale = j->scales[f], bias = j->biases ? j->biases[f] : 0;
        for (size_t b = 0; b < j->e.batch; ++b) {
            float *x = j->out + plane(&j->e, b, f);
            if (j->biases)
                for (size_t i = 0; i < j->e.spatial; ++i) x[i] = x[i] * scale + bias;
            else
                for (size_t i = 0; i < j->e.spatial; ++i) x[i] *= scale;
        }
    }
}

void scale_add_bias(float *x, const float *scales, const float *biases, extent e) {
    job j = {.e = e, .scales = scales, .biases = biases, .out = x};
    parallel_for(e.c, e.batch * e.spatial, scale_channels, &j);
}

void scale_bias(float *x, const float *scales, extent e) {
    scale_add_bias(x, scales, NULL, e);
}

/* bias_updates[f] += sum over the pixels of one image, image after image */
void backward_bias(float *bias_updates, const float *delta, extent e) {
    for (size_t b = 0; b < e.batch; ++b) {
        for (size_t f = 0; f < e.c; ++f) {
            const float *d = delta + plane(&e, b, f);
            float sum = 0;
            for (size_t i = 0; i < e.spatial; ++i) sum += d[i];
            bias_updates[f] += sum;
        }
    }
}

static void scale_update_channels(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const job *j = context;
    for (size_t f = begin; f < end; ++f) {
        float sum = 0;
        for (size_t b = 0; b < j->e.batch; ++b) {
            const float *x_norm = j->x + plane(&j->e, b, f), *d = j->delta + plane(&j->e, b, f);
            for (size_t i = 0; i < j->e.spatial; ++i) sum += d[i] * x_norm[i];
        }
        j->out[f] += sum;
    }
}

/* scale_updates[f] += sum of delta * x_norm */
void backward_scale_cpu(const float *x_norm, const float *delta, extent e, float *scale_updates) {
    job j = {.e = e, .x = x_norm, .delta = delta, .out = scale_updates};
    parallel_for(e.c, e.batch * e.spatial, scale_update_channels, &j);
}

static void mean_delta_channels(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const job *j = context;
    for (size_t f = begin; f < end; ++f) {
        float sum = 0;
        for (size_t b = 0; b < j->e.batch; ++b) {
            const float *d = j->delta + plane(&j->e, b, f);
            for (size_t i = 0; i < j->e.spatial; ++i) sum += d[i];
        }
        j->out[f] = (float)((double)sum * (-1. / root(j->variance[f], &j->rule->statistic_terms, j->rule->intermediate)));
    }
}

/* mean_delta[f] = -1/root[f] * sum of delta, which is scaled already; overwritten */
void mean_delta_cpu(const float *delta, const float *variance, extent e, const batchnorm_rule *rule, float *mean_delta) {
    job j = {.e = e, .delta = delta, .variance = variance, .rule = rule, .out = mean_delta};
    parallel_for(e.c, e.batch * e.spatial, mean_delta_channels, &j);
}

static void variance_delta_channels(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const job *j = context;
    for (size_t f = begin; f < end; ++f) {
        float mean = j->mean[f], sum = 0;
        for (size_t b = 0; b < j->e.batch; ++b) {
            const float *x = j->x + plane(&j->e, b, f), *d = j->delta + plane(&j->e, b, f);
            for (size_t i = 0; i < j->e.spatial; ++i) sum += d[i] * (x[i] - mean);
        }
        double power = root_to_minus_3(j->variance[f], &j->rule->statistic_terms, j->rule->intermediate);
        j->out[f] = (float)((double)sum * (-.5 * power));
    }
}

/* variance_delta[f] = -.5 * (variance + eps)^-1.5 * sum of delta * (x - mean); overwritten */
void variance_delta_cpu(const float *x, const float *delta, const float *mean, const float *variance, extent e,
                        const batchnorm_rule *rule, float *variance_delta) {
    job j = {.e = e, .x = x, .delta = delta, .mean = mean, .variance = variance, .rule = rule, .out = variance_delta};
    parallel_for(e.c, e.batch * e.spatial * 2, variance_delta_channels, &j);
}

/* delta = delta*1/root + variance_delta*2*(x - mean)/n + mean_delta/n, left to right in double, the last quotient in float */
static void normalize_delta_channels(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const job *j = context;
    size_t n = j->e.batch * j->e.spatial;
    for (size_t f = begin; f < end; ++f) {
        double r = root(j->variance[f], &j->rule->direct_term, j->rule->intermediate);
        double variance_term = (double)j->variance_delta[f] * 2.;
        double mean_term = (double)(j->mean_delta[f] / (float)n);
        float mean = j->mean[f];
        for (size_t b = 0; b < j->e.batch; ++b) {
            const float *x = j->x + plane(&j->e, b, f);
            float *d = j->out + plane(&j->e, b, f);
            for (size_t i = 0; i < j->e.spatial; ++i)
                d[i] = (float)((double)d[i] / r + variance_term * (double)(x[i] - mean) / (double)n + mean_term);
        }
    }
}

static void direct_channels(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const job *j = context;
    for (size_t f = begin; f < end; ++f) {
        double r = root(j->variance[f], &j->rule->direct_term, j->rule->intermediate);
        for (size_t b = 0; b < j->e.batch; ++b) {
            float *d = j->out + plane(&j->e, b, f);
            for (size_t i = 0; i < j->e.spatial; ++i) d[i] = (float)((double)d[i] / r);
        }
    }
}

/* delta = delta*1/root in place: the statistics are constants */
void direct_delta_cpu(const float *variance, extent e, const batchnorm_rule *rule, float *delta) {
    job j = {.e = e, .variance = variance, .rule = rule, .out = delta};
    parallel_for(e.c, e.batch * e.spatial * 4, direct_channels, &j);
}

/* delta in place: from the gradient to x_norm (scaled) to the gradient to x */
void normalize_delta_cpu(const float *x, const float *mean, const float *variance, const float *mean_delta,
                         const float *variance_delta, extent e, const batchnorm_rule *rule, float *delta) {
    job j = {.e = e,
             .x = x,
             .mean = mean,
             .variance = variance,
             .mean_delta = mean_delta,
             .variance_delta = variance_delta,
             .rule = rule,
             .out = delta};
    parallel_for(e.c, e.batch * e.spatial * 8, normalize_delta_channels, &j);
}
