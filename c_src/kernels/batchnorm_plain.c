/* Batch normalization, one loop a formula: the specification of batchnorm.c and batchnorm_strided.c, and the order of every sum
 * (pjreddie/darknet src/blas.c, src/batchnorm_layer.c; strided: src/blas_kernels.cu). n = batch*spatial; eps is the rule's epsilon
 * for that step. */
#include <math.h>

#include "batchnorm_root.h"
#include "kernels.h"

enum { STRIDE = 512 };

static double power_from_root(float v, const epsilon_rule *e, precision p) {
    double root = batchnorm_root(v, e, p), sum = e->literal == LITERAL_FLOAT ? (double)(v + (float)e->value) : (double)v + e->value;
    if (p == PRECISION_DOUBLE) return 1. / ((e->side == SIDE_INSIDE ? sum : root * root) * root);
    float single = (float)root, square = e->side == SIDE_INSIDE ? v + (float)e->value : single * single;
    return (double)(1.F / (square * single));
}

/* (v + eps)^-1.5, or the same of a root with its epsilon outside */
double batchnorm_root_to_minus_3(float v, const epsilon_rule *e, const batchnorm_rule *rule) {
    precision p = rule->intermediate;
    if (rule->inverse_cube == INVERSE_CUBE_ROOT) return power_from_root(v, e, p);
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

/* ---- sums ------------------------------------------------------------------------------------------------------------------- */

/* sum plus the term of value i, which is one of channel f */
typedef float (*addition)(const batchnorm_pass *p, float sum, size_t i, size_t f);

/* sum plus pixels first, first + step, … of one plane */
static float add_plane(const batchnorm_pass *p, float sum, size_t image, size_t f, size_t first, size_t step, addition add) {
    size_t plane = (image * p->c + f) * p->spatial;
    for (size_t s = first; s < p->spatial; s += step) sum = add(p, sum, plane + s, f);
    return sum;
}

/* Over the batch. sum: what there is */
static float add_channel(const batchnorm_pass *p, float sum, size_t f, addition add) {
    if (p->rule->summation == SUMMATION_SERIAL) {
        for (size_t b = 0; b < p->batch; ++b) sum = add_plane(p, sum, b, f, 0, 1, add);
        return sum;
    }
    for (size_t first = 0; first < STRIDE; ++first) {
        float part = 0;
        for (size_t b = 0; b < p->batch; ++b) part = add_plane(p, part, b, f, first, STRIDE, add);
        sum += part;
    }
    return sum;
}

static float add_input(const batchnorm_pass *p, float sum, size_t i, size_t f) {
    (void)f;
    return sum + p->input[i];
}

/* (x - mean[f])^2: the difference in float; square and sum in float, or in double and the sum rounded to float */
static float add_square(const batchnorm_pass *p, float sum, size_t i, size_t f) {
    float off = p->input[i] - p->mean[f];
    return p->rule->squares == PRECISION_FLOAT ? sum + off * off : (float)((double)sum + (double)off * (double)off);
}

/* ---- forward ---------------------------------------------------------------------------------------------------------------- */

/* n = 0, of a variance over n - 1: a reciprocal makes 0 * inf = NaN of the sum 0, a quotient 0/0 */
static float moment(const batchnorm_pass *p, float sum, size_t n) {
    return p->rule->moments == MOMENTS_RECIPROCAL ? sum * (float)(1. / (double)n) : sum / (float)n;
}

/* A variance over n as it is over the rule's denominator */
static float over(denominator d, float variance, size_t n) {
    return d == DENOMINATOR_N ? variance : variance * (float)((double)n / (double)(n - 1));
}

void batchnorm_moments_of_squares(const batchnorm_pass *p, size_t f) {
    size_t n = p->batch * p->spatial;
    double sum = 0, squares = 0;
    for (size_t b = 0; b < p->batch; ++b) {
        const float *x = p->input + (b * p->c + f) * p->spatial;
        for (size_t s = 0; s < p->spatial; ++s) {
            sum += (double)x[s];
            squares += (double)(x[s] * x[s]);
        }
    }
    float mean = (float)(sum / (double)n), variance = (float)(squares / (double)n) - mean * mean;
    if (variance < 0) variance = 0; /* NaN stays */
    p->mean[f] = mean;
    p->variance[f] = over(p->rule->normalize_variance, variance, n);
    p->kept[f] = over(p->rule->keep_variance, variance, n);
}

static void moments_plain(const batchnorm_pass *p) {
    size_t n = p->batch * p->spatial;
    if (p->rule->variance_formula == VARIANCE_FORMULA_SQUARES) {
        for (size_t f = 0; f < p->c; ++f) batchnorm_moments_of_squares(p, f);
        return;
    }
    for (size_t f = 0; f < p->c; ++f) {
        p->mean[f] = moment(p, add_channel(p, 0, f, add_input), n);
        float squares = add_channel(p, 0, f, add_square);
        p->variance[f] = moment(p, squares, p->rule->normalize_variance == DENOMINATOR_N ? n : n - 1);
        p->kept[f] = moment(p, squares, p->rule->keep_variance == DENOMINATOR_N ? n : n - 1);
    }
}

/* (x - mean[f]) / root[f] */
static float quotient(const batchnorm_pass *p, float x, size_t f) {
    precision intermediate = p->rule->intermediate;
    return batchnorm_quotient(x, p->mean[f], batchnorm_root(p->variance[f], &p->rule->forward, intermediate), intermediate);
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
    if (p->rule->summation == SUMMATION_DOUBLE && p->rule->variance_formula == VARIANCE_FORMULA_DIFFERENCES)
        batchnorm_moments_plain(p);
    else
        moments_plain(p);
    normalize_plain(p);
}

void batchnorm_infer_plain(const batchnorm_pass *p) {
    normalize_plain(p);
}

/* ---- backward --------------------------------------------------------------------------------------------------------------- */

static float add_product(const batchnorm_pass *p, float sum, size_t i, size_t f) {
    return sum + p->input[i] * (p->x_norm ? p->x_norm[i] : quotient(p, p->x[i], f));
}

/* bias_updates[f] += sum of delta; scale_updates[f] += sum of delta * x_norm. Serial: the sums of biases are those of one image each */
static void updates_plain(const batchnorm_pass *p) {
    int serial = p->rule->summation == SUMMATION_SERIAL;
    for (size_t f = 0; f < p->c; ++f) {
        p->scale_updates[f] =
            serial ? p->scale_updates[f] + add_channel(p, 0, f, add_product) : add_channel(p, p->scale_updates[f], f, add_product);
        if (!p->bias_updates) continue;
        if (!serial) p->bias_updates[f] = add_channel(p, p->bias_updates[f], f, add_input);
        for (size_t b = 0; serial && b < p->batch; ++b) p->bias_updates[f] += add_plane(p, 0, b, f, 0, 1, add_input);
    }
}

/* Of the scaled delta, which stands in output */
static float add_delta_of_mean(const batchnorm_pass *p, float sum, size_t i, size_t f) {
    (void)f;
    return sum + p->output[i];
}

static float add_delta_of_variance(const batchnorm_pass *p, float sum, size_t i, size_t f) {
    return sum + p->output[i] * (p->x[i] - p->mean[f]);
}

/* mean_delta[f] = sum of delta * (-1/root[f]);  variance_delta[f] = sum of delta * (x - mean) * (-.5 * (variance + eps)^-1.5) */
static void statistics_deltas_plain(const batchnorm_pass *p) {
    const batchnorm_rule *rule = p->rule;
    for (size_t f = 0; f < p->c; ++f) {
        float sum = add_channel(p, 0, f, add_delta_of_mean), product = add_channel(p, 0, f, add_delta_of_variance);
        double root = batchnorm_root(p->variance[f], &rule->statistic_terms, rule->intermediate);
        double power = batchnorm_root_to_minus_3(p->variance[f], &rule->statistic_terms, rule);
        p->mean_delta[f] = rule->quotients == PRECISION_FLOAT ? sum * (-1.F / (float)root) : (float)((double)sum * (-1. / root));
        p->variance_delta[f] =
            rule->products == PRECISION_FLOAT ? product * (-.5F * (float)power) : (float)((double)product * (-.5 * power));
    }
}

/* delta*1/root + variance_delta*2*(x - mean)/n + mean_delta/n, left to right, the last quotient in float */
static float delta_of_input(const batchnorm_pass *p, size_t i, size_t f) {
    const batchnorm_rule *rule = p->rule;
    double root = batchnorm_root(p->variance[f], &rule->direct_term, rule->intermediate);
    double direct = rule->quotients == PRECISION_FLOAT ? (double)(p->output[i] / (float)root) : (double)p->output[i] / root;
    if (p->constant) return (float)direct;
    size_t n = p->batch * p->spatial;
    float off = p->x[i] - p->mean[f], third = p->mean_delta[f] / (float)n;
    if (rule->products == PRECISION_DOUBLE)
        return (float)(direct + (double)p->variance_delta[f] * 2. * (double)off / (double)n + (double)third);
    float second = p->variance_delta[f] * 2.F * off / (float)n;
    return rule->quotients == PRECISION_FLOAT ? (float)direct + second + third : (float)(direct + (double)second + (double)third);
}

void batchnorm_backward_plain(const batchnorm_pass *p) {
    int wide = p->rule->summation == SUMMATION_DOUBLE;
    if (wide)
        batchnorm_delta_sums_plain(p);
    else
        updates_plain(p);
    for (size_t i = 0; i < floats_of(p); ++i) p->output[i] = p->input[i] * p->scales[channel(p, i)];
    if (!wide && !p->constant) statistics_deltas_plain(p);
    for (size_t i = 0; i < floats_of(p); ++i) p->output[i] = delta_of_input(p, i, channel(p, i));
}
