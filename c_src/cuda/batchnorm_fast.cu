/* Batch normalization at the speed of the memory: one pass for the statistics, one for the output. A channel's values are cut among
 * several blocks; each thread keeps moments of its own, which are merged by threads, blocks and channel. The second pass of a forward
 * or backward goes from the last channel to the first, whose values the first pass left in the cache. */
#include "channels.cuh"
#include "statistics.cuh"

namespace {

/* Grid: splits, c */
template <typename T, int N>
__global__ void __launch_bounds__(CHANNEL_THREADS)
    normalize_kernel(planes s, epsilon_rule e, const T *x, const float *mean, const float *variance, const float *scales,
                     const float *biases, T *output) {
    enum { U = PACKS_OF_ONE };
    size_t f = s.c - 1 - blockIdx.y;
    float middle = mean[f], factor = scales[f] / device_root(variance[f], &e), bias = biases[f];
    over_channel<N, U>(s, f, [&](const size_t *offsets, auto count) {
        float values[U * N];
        load_packs<T, N, U>(x, offsets, count, values);
#pragma unroll
        for (int u = 0; u < U; ++u) {
            for (int k = u * N; k < (u + 1) * N; ++k) values[k] = (values[k] - middle) * factor + bias;
            if (u < count) store<T, N>(values + u * N, output + offsets[u]);
        }
    });
}

template <typename T, int N>
__global__ void __launch_bounds__(CHANNEL_THREADS)
    carry_kernel(planes s, const T *x, const T *delta, const fast_terms *terms, T *input_delta) {
    enum { U = PACKS_OF_TWO };
    size_t f = s.c - 1 - blockIdx.y;
    fast_terms t = terms[f];
    over_channel<N, U>(s, f, [&](const size_t *offsets, auto count) {
        float values[U * N], deltas[U * N];
        load_packs<T, N, U>(x, offsets, count, values);
        load_packs<T, N, U>(delta, offsets, count, deltas);
#pragma unroll
        for (int u = 0; u < U; ++u) {
            for (int k = u * N; k < (u + 1) * N; ++k) deltas[k] = fast_delta(t, values[k], deltas[k]);
            if (u < count) store<T, N>(deltas + u * N, input_delta + offsets[u]);
        }
    });
}

/* ---- how passes that only read end ------------------------------------------------------------------------------------------------ */

struct keep_moments {
    batchnorm_rule rule;
    kept_statistics to;
    __device__ void operator()(size_t f, part_moments<float> m) const {
        keep_statistics(to, f, m.mean, variance_of(m, rule.normalize_variance), variance_of(m, rule.keep_variance));
    }
};

struct keep_sums {
    fast_gradients to;
    float n;
    __device__ void operator()(size_t f, part_sums<float> sums) const {
        add_updates(to, f, sums);
        find_terms(to, f, sums, n);
    }
};

} // namespace

cudaError_t fast_moments(const gpu_job &job, const void *x) {
    batchnorm_gpu *l = job.l;
    part_moments<float> *partials = static_cast<part_moments<float> *>(l->partials);
    keep_moments finish = {l->rule, statistics_of(job)};
    return by_storage(job, x, x, x, [&](auto zero, auto width) {
        using T = decltype(zero);
        LAUNCH((moments_kernel<float, T, width, keep_moments>), grid_of_channels(job, width), CHANNEL_THREADS,
               job.stream)(planes_of(job), (const T *)x, partials, l->arrived, finish);
    });
}

cudaError_t fast_normalize(const gpu_job &job, const void *x, void *output) {
    const batchnorm_gpu *l = job.l;
    return by_storage(job, x, output, output, [&](auto zero, auto width) {
        using T = decltype(zero);
        LAUNCH((normalize_kernel<T, width>), grid_of_channels(job, width), CHANNEL_THREADS, job.stream)(
            planes_of(job), l->rule.forward, (const T *)x, job.mean, job.variance, l->scales, l->biases, (T *)output);
    });
}

cudaError_t fast_deltas(const gpu_job &job, const void *x, const void *delta, bool constant) {
    batchnorm_gpu *l = job.l;
    part_sums<float> *partials = static_cast<part_sums<float> *>(l->partials);
    keep_sums finish = {gradients_of(job, constant), (float)(job.batch * job.spatial)};
    return by_storage(job, x, delta, delta, [&](auto zero, auto width) {
        using T = decltype(zero);
        LAUNCH((sums_kernel<float, T, width, keep_sums>), grid_of_channels(job, width), CHANNEL_THREADS,
               job.stream)(planes_of(job), (const T *)x, (const T *)delta, job.mean, partials, l->arrived, finish);
    });
}

cudaError_t fast_carry(const gpu_job &job, const void *x, const void *delta, void *input_delta) {
    const batchnorm_gpu *l = job.l;
    return by_storage(job, x, delta, input_delta, [&](auto zero, auto width) {
        using T = decltype(zero);
        LAUNCH((carry_kernel<T, width>), grid_of_channels(job, width), CHANNEL_THREADS,
               job.stream)(planes_of(job), (const T *)x, (const T *)delta, l->terms, (T *)input_delta);
    });
}
