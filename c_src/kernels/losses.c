/* What losses share: costs of values, a row of a truth. */
#include "losses.h"

#include <math.h>

#include "elementary.h"

static const float secret = -1234; /* a truth that masks its value */

box box_at(const float *row) {
    return (box){row[0], row[1], row[2], row[3]};
}

int class_of(const loss_image *m, const float *row) {
    const int told = (int)row[m->o->class_at];
    return m->l->map ? m->l->map[told] : told;
}

float log_of(float x, precision p) {
    if (p == PRECISION_DOUBLE && !uses_own_functions()) return (float)log((double)x);
    return chosen_elementary()->logf(x);
}

float focus(float p) {
    return -(1 - p) * (2 * p * chosen_elementary()->logf(p) + p - 1);
}

float sum_of_squares(const float *x, size_t n) {
    float sum = 0;
    for (size_t i = 0; i < n; ++i) sum += x[i] * x[i];
    return sum;
}

static void smooth_cost(float difference, smooth_sign sign, float *delta, float *error) {
    const float magnitude = fabsf(difference), away = difference < 0 ? 1 : -1;
    if (magnitude < 1) {
        *error = difference * difference;
        *delta = difference;
        return;
    }
    *error = 2 * magnitude - 1;
    *delta = sign == SMOOTH_SIGN_AWAY ? away : difference > 0 ? 1 : -1;
}

/* Source: blas.c l2_cpu, l1_cpu, smooth_l1_cpu, all forks; the sign of the last is not the same in all. */
float cost_cpu(const float *input, const float *truth, size_t n, cost kind, smooth_sign sign, float *delta, float *error) {
    float sum = 0;
    for (size_t i = 0; i < n; ++i) {
        const float pred = kind == COST_MASKED && truth[i] == secret ? secret : input[i];
        const float difference = truth[i] - pred;
        if (kind == COST_SMOOTH) {
            smooth_cost(difference, sign, &delta[i], &error[i]);
        } else if (kind == COST_L1) {
            error[i] = fabsf(difference);
            delta[i] = difference > 0 ? 1 : -1;
        } else {
            error[i] = difference * difference;
            delta[i] = difference;
        }
        sum += error[i];
    }
    return sum;
}

void mask_cpu(float *input, const float *truth, size_t n) {
    for (size_t i = 0; i < n; ++i)
        if (truth[i] == secret) input[i] = secret;
}

/* Source: blas.c softmax_x_ent_cpu, all forks. */
float softmax_cross_entropy(const float *p, const float *truth, size_t n, precision log_precision, float *delta) {
    float sum = 0;
    for (size_t i = 0; i < n; ++i) {
        sum += truth[i] != 0 ? -log_of(p[i], log_precision) : 0;
        delta[i] = truth[i] - p[i];
    }
    return sum;
}
