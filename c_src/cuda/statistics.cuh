/* What a channel's moments and sums become, in every kernel that ends with them. */
#ifndef DARKNETBN_STATISTICS_CUH
#define DARKNETBN_STATISTICS_CUH

#include "../kernels/device_batchnorm.h"
#include "gpu.h"
#include "moments.cuh"

/* Where the statistics of a training forward go */
struct kept_statistics {
    float *mean, *variance, *kept, *rolling_mean, *rolling_variance;
    rolling_move move;
};

inline kept_statistics statistics_of(const gpu_job &job) {
    const batchnorm_gpu *l = job.l;
    return {l->mean, l->variance, l->kept, l->rolling_mean, l->rolling_variance, job.move};
}

/* rolling = rolling * keep, then + add * value: two roundings and one for the product */
__device__ inline void keep_statistics(const kept_statistics &to, size_t f, float mean, float variance, float kept) {
    to.mean[f] = mean, to.variance[f] = variance, to.kept[f] = kept;
    if (!to.move.moves) return;
    to.rolling_mean[f] = to.rolling_mean[f] * to.move.keep + to.move.add * mean;
    to.rolling_variance[f] = to.rolling_variance[f] * to.move.keep + to.move.add * kept;
}

/* What a fast backward reads and writes of each channel */
struct fast_gradients {
    batchnorm_rule rule;
    const float *mean, *variance, *scales;
    float *scale_updates, *bias_updates, *mean_delta, *variance_delta;
    fast_terms *terms;
    bool constant;
};

inline fast_gradients gradients_of(const gpu_job &job, bool constant) {
    const batchnorm_gpu *l = job.l;
    return {l->rule,         job.mean,      job.variance,      l->scales, l->scale_updates,
            l->bias_updates, l->mean_delta, l->variance_delta, l->terms,  constant};
}

/* The gradients of one channel's parameters, of the sums of its deltas */
template <typename R> __device__ inline void add_updates(const fast_gradients &to, size_t f, part_sums<R> sums) {
    to.scale_updates[f] += (float)(sums.off / device_root(to.variance[f], &to.rule.forward));
    if (to.rule.bias_gradient) to.bias_updates[f] += (float)sums.delta;
}

/* Those of its mean and variance, of n values, and so what its deltas become */
template <typename R> __device__ inline void find_terms(const fast_gradients &to, size_t f, part_sums<R> sums, float n) {
    float variance = to.variance[f], scale = to.scales[f];
    fast_terms t = {to.mean[f], scale / device_root(variance, &to.rule.direct_term), 0, 0};
    if (!to.constant) {
        float by_mean = device_mean_delta((float)(sums.delta * scale), device_root(variance, &to.rule.statistic_terms));
        float power = device_power(variance, &to.rule.statistic_terms);
        float by_variance = device_variance_delta((float)(sums.off * scale), power, PRECISION_FLOAT);
        to.mean_delta[f] = by_mean, to.variance_delta[f] = by_variance;
        t.per_off = by_variance * 2.F / n, t.third = by_mean / n;
    }
    to.terms[f] = t;
}

#endif
