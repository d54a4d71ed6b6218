/* The rolling arrays of a batchnorm, and the number of batches in them. */
#include <string.h>

#include "../internal.h"
#include "../kernels/kernels.h"

status reset_batchnorm_layer(layer *l, int statistics, int parameters) {
    if (statistics) l->num_batches_tracked = 0;
    for (size_t f = 0; f < l->c; ++f) {
        if (parameters) l->scales[f] = 1, l->biases[f] = 0;
        if (statistics) l->rolling_mean[f] = l->rolling_variance[f] = 0;
    }
    return STATUS_OK;
}

/* rolling *= keep; rolling += add * value: two roundings and one for the product */
static void move(size_t n, double keep, double add, float *rolling, const float *value) {
    scal_cpu(n, (float)keep, rolling);
    axpy_cpu(n, (float)add, value, rolling);
}

void move_rolling(layer *l, const float *kept) {
    const batchnorm_rule *rule = &l->batchnorm_rule;
    double keep = rule->rolling_keep, add = rule->rolling_add;
    l->num_batches_tracked += 1;
    if (rule->rolling == ROLLING_CUMULATIVE) {
        add = 1. / (double)l->num_batches_tracked;
        keep = 1. - add;
    }
    move(l->c, keep, add, l->rolling_mean, l->mean);
    move(l->c, keep, add, l->rolling_variance, kept);
}

void copy_rolling(layer *l) {
    memcpy(l->mean, l->rolling_mean, l->c * sizeof *l->mean);
    memcpy(l->variance, l->rolling_variance, l->c * sizeof *l->variance);
}
