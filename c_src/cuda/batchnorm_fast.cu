/* Batch normalization at the speed of the memory: one pass for the statistics, one for the output. A channel's values are cut among
 * several blocks; each thread keeps moments of its own, which are merged by threads, blocks and channel. */
#include "gpu.h"
#include "moments.h"
#include "storage.cuh"

namespace {

enum { THREADS = 256, WARP = 32, UNROLL = 4, WANTED_BLOCKS = 4096 };

struct planes {
    size_t batch, c, spatial;
};

/* ---- the values of a channel, N at a time, dealt to the threads of `splits` blocks ------------------------------------------------ */

/* Calls take(offset) with the offset of each pack of this thread; the next offset is found without a division. */
template <int N, typename F> __device__ inline void over_channel(const planes &s, size_t f, F take) {
    size_t per_plane = s.spatial / N, step = (size_t)gridDim.x * blockDim.x;
    size_t first = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    size_t b = first / per_plane, i = first % per_plane, more_b = step / per_plane, more_i = step % per_plane;
    while (b < s.batch) {
        take((b * s.c + f) * s.spatial + i * N);
        b += more_b, i += more_i;
        if (i >= per_plane) i -= per_plane, ++b;
    }
}

/* ---- merging ---------------------------------------------------------------------------------------------------------------------- */

__device__ part_moments from_lane(part_moments m, int offset) {
    return {__shfl_down_sync(~0U, m.n, offset), __shfl_down_sync(~0U, m.mean, offset), __shfl_down_sync(~0U, m.squares, offset)};
}

/* Thread 0 gets the moments of the block. */
__device__ part_moments of_block(part_moments m) {
    __shared__ part_moments warps[THREADS / WARP];
    for (int offset = WARP / 2; offset; offset /= 2) m = moments_of_both(m, from_lane(m, offset));
    if (threadIdx.x % WARP == 0) warps[threadIdx.x / WARP] = m;
    __syncthreads();
    for (int w = 1; threadIdx.x == 0 && w < THREADS / WARP; ++w) m = moments_of_both(m, warps[w]);
    return m;
}

/* The sum of both over the block, in thread 0 */
__device__ float2 of_block(float2 sums) {
    __shared__ float2 warps[THREADS / WARP];
    for (int offset = WARP / 2; offset; offset /= 2) {
        sums.x += __shfl_down_sync(~0U, sums.x, offset);
        sums.y += __shfl_down_sync(~0U, sums.y, offset);
    }
    if (threadIdx.x % WARP == 0) warps[threadIdx.x / WARP] = sums;
    __syncthreads();
    for (int w = 1; threadIdx.x == 0 && w < THREADS / WARP; ++w) sums.x += warps[w].x, sums.y += warps[w].y;
    return sums;
}

/* ---- forward ---------------------------------------------------------------------------------------------------------------------- */

/* partials[f][split]; grid: splits, c */
template <typename T, int N> __global__ void moments_kernel(planes s, const T *x, part_moments *partials) {
    part_moments own = {0, 0, 0};
    size_t f = blockIdx.y;
    over_channel<N>(s, f, [&](size_t offset) {
        float values[N];
        load<T, N>(x + offset, values);
        own = moments_of_both(own, moments_of_values(values, N));
    });
    own = of_block(own);
    if (threadIdx.x == 0) partials[f * gridDim.x + blockIdx.x] = own;
}

__global__ void finish_moments_kernel(size_t c, int splits, batchnorm_rule rule, const part_moments *partials, float *mean,
                                      float *variance, float *kept) {
    size_t f = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (f >= c) return;
    part_moments all = partials[f * splits];
    for (int i = 1; i < splits; ++i) all = moments_of_both(all, partials[f * splits + i]);
    mean[f] = all.mean;
    variance[f] = variance_of_moments(all, rule.normalize_variance);
    kept[f] = variance_of_moments(all, rule.keep_variance);
}

/* grid: pieces of a plane, planes */
template <typename T, int N>
__global__ void normalize_kernel(planes s, epsilon_rule e, const T *x, const float *mean, const float *variance,
                                 const float *scales, const float *biases, T *output) {
    for (size_t plane = blockIdx.x; plane < s.batch * s.c; plane += gridDim.x) {
        size_t f = plane % s.c;
        float middle = mean[f], factor = scales[f] / device_root(variance[f], &e), bias = biases[f];
        size_t step = (size_t)gridDim.y * blockDim.x * N;
        for (size_t i = ((size_t)blockIdx.y * blockDim.x + threadIdx.x) * N; i < s.spatial; i += step) {
            float values[N];
            load<T, N>(x + plane * s.spatial + i, values);
            for (int k = 0; k < N; ++k) values[k] = (values[k] - middle) * factor + bias;
            store<T, N>(values, output + plane * s.spatial + i);
        }
    }
}

/* ---- backward --------------------------------------------------------------------------------------------------------------------- */

/* partials[f][split] = sum of delta, of delta * (x - mean) */
template <typename T, int N>
__global__ void sums_kernel(planes s, const T *x, const T *delta, const float *mean, float2 *partials) {
    float2 own = {0, 0};
    size_t f = blockIdx.y;
    float middle = mean[f];
    over_channel<N>(s, f, [&](size_t offset) {
        float values[N], deltas[N];
        load<T, N>(x + offset, values);
        load<T, N>(delta + offset, deltas);
        for (int k = 0; k < N; ++k) own.x += deltas[k], own.y += deltas[k] * (values[k] - middle);
    });
    own = of_block(own);
    if (threadIdx.x == 0) partials[f * gridDim.x + blockIdx.x] = own;
}

struct gradients {
    float *scale_updates, *bias_updates, *mean_delta, *variance_delta;
};

__global__ void finish_sums_kernel(size_t c, int splits, batchnorm_rule rule, const float2 *partials, const float *variance,
                                   const float *scales, gradients to, bool constant) {
    size_t f = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (f >= c) return;
    float2 sums = partials[f * splits];
    for (int i = 1; i < splits; ++i) sums.x += partials[f * splits + i].x, sums.y += partials[f * splits + i].y;
    to.scale_updates[f] += sums.y / device_root(variance[f], &rule.forward);
    if (rule.bias_gradient) to.bias_updates[f] += sums.x;
    if (constant) return;
    to.mean_delta[f] = device_mean_delta(sums.x * scales[f], device_root(variance[f], &rule.statistic_terms));
    float power = device_power(variance[f], &rule.statistic_terms);
    to.variance_delta[f] = device_variance_delta(sums.y * scales[f], power, PRECISION_FLOAT);
}

template <typename T, int N>
__global__ void carry_kernel(planes s, epsilon_rule e, const T *x, const T *delta, const float *mean, const float *variance,
                             const float *scales, const float *mean_delta, const float *variance_delta, T *input_delta,
                             bool constant) {
    for (size_t plane = blockIdx.x; plane < s.batch * s.c; plane += gridDim.x) {
        size_t f = plane % s.c;
        fast_terms t = terms_of_channel(mean[f], variance[f], scales[f], mean_delta[f], variance_delta[f],
                                        (float)(s.batch * s.spatial), &e, constant);
        size_t step = (size_t)gridDim.y * blockDim.x * N;
        for (size_t i = ((size_t)blockIdx.y * blockDim.x + threadIdx.x) * N; i < s.spatial; i += step) {
            float values[N], deltas[N];
            load<T, N>(x + plane * s.spatial + i, values);
            load<T, N>(delta + plane * s.spatial + i, deltas);
            for (int k = 0; k < N; ++k) deltas[k] = fast_delta(&t, values[k], deltas[k]);
            store<T, N>(deltas, input_delta + plane * s.spatial + i);
        }
    }
}

/* ---- how they are called ---------------------------------------------------------------------------------------------------------- */

planes planes_of(const gpu_job &job) {
    return {job.batch, job.l->c, job.spatial};
}

size_t quotient_up(size_t n, size_t by) {
    return (n + by - 1) / by;
}

/* Blocks for one channel: as many as keep the device busy, each with something to do */
unsigned splits_of(const gpu_job &job, int width) {
    size_t most = quotient_up(job.batch * (job.spatial / width), (size_t)THREADS * UNROLL);
    size_t wanted = quotient_up(WANTED_BLOCKS, job.l->c);
    size_t splits = wanted < most ? wanted : most;
    const size_t limit = SPLITS;
    splits = splits < limit ? splits : limit;
    return (unsigned)(splits ? splits : 1);
}

/* Planes, and pieces of one */
dim3 grid_of_planes(const gpu_job &job, int width) {
    size_t all = job.batch * job.l->c, pieces = quotient_up(job.spatial / width, (size_t)THREADS * UNROLL);
    const size_t most_planes = 0x7fffffff, most_pieces = 65535;
    return {(unsigned)(all < most_planes ? all : most_planes),
            (unsigned)(pieces < most_pieces ? pieces ? pieces : 1 : most_pieces)};
}

unsigned blocks_of_channels(size_t c) {
    return (unsigned)quotient_up(c, THREADS);
}

/* Launch with the storage type's widest packs where all arrays lie in them, else value by value. */
template <typename F> cudaError_t by_storage(const gpu_job &job, const void *a, const void *b, const void *c, F launch) {
    auto chosen = [&](auto zero) {
        using T = decltype(zero);
        bool packs = lies_in_packs<T>(a, job.spatial) && lies_in_packs<T>(b, job.spatial) && lies_in_packs<T>(c, job.spatial);
        if (packs)
            launch(zero, std::integral_constant<int, widest<T>>());
        else
            launch(zero, std::integral_constant<int, 1>());
    };
    if (job.l->type == STORAGE_FLOAT32) chosen(float());
    if (job.l->type == STORAGE_FLOAT16) chosen(__half());
    if (job.l->type == STORAGE_BFLOAT16) chosen(__nv_bfloat16());
    return cudaGetLastError();
}

} // namespace

cudaError_t fast_moments(const gpu_job &job, const void *x) {
    batchnorm_gpu *l = job.l;
    part_moments *partials = reinterpret_cast<part_moments *>(l->partials);
    unsigned splits = 1;
    cudaError_t error = by_storage(job, x, x, x, [&](auto zero, auto width) {
        using T = decltype(zero);
        splits = splits_of(job, width);
        LAUNCH((moments_kernel<T, width>), dim3(splits, (unsigned)l->c), THREADS, job.stream)(planes_of(job), (const T *)x,
                                                                                              partials);
    });
    if (error != cudaSuccess) return error;
    LAUNCH((finish_moments_kernel), blocks_of_channels(l->c), THREADS, job.stream)(l->c, (int)splits, l->rule, partials, l->mean,
                                                                                   l->variance, l->kept);
    return cudaGetLastError();
}

cudaError_t fast_normalize(const gpu_job &job, const void *x, void *output) {
    const batchnorm_gpu *l = job.l;
    return by_storage(job, x, output, output, [&](auto zero, auto width) {
        using T = decltype(zero);
        LAUNCH((normalize_kernel<T, width>), grid_of_planes(job, width), THREADS, job.stream)(
            planes_of(job), l->rule.forward, (const T *)x, job.mean, job.variance, l->scales, l->biases, (T *)output);
    });
}

cudaError_t fast_deltas(const gpu_job &job, const void *x, const void *delta, bool constant) {
    batchnorm_gpu *l = job.l;
    float2 *partials = reinterpret_cast<float2 *>(l->partials);
    unsigned splits = 1;
    cudaError_t error = by_storage(job, x, delta, delta, [&](auto zero, auto width) {
        using T = decltype(zero);
        splits = splits_of(job, width);
        LAUNCH((sums_kernel<T, width>), dim3(splits, (unsigned)l->c), THREADS, job.stream)(planes_of(job), (const T *)x,
                                                                                           (const T *)delta, job.mean, partials);
    });
    if (error != cudaSuccess) return error;
    gradients to = {l->scale_updates, l->bias_updates, l->mean_delta, l->variance_delta};
    LAUNCH((finish_sums_kernel), blocks_of_channels(l->c), THREADS, job.stream)(l->c, (int)splits, l->rule, partials, job.variance,
                                                                                l->scales, to, constant);
    return cudaGetLastError();
}

cudaError_t fast_carry(const gpu_job &job, const void *x, const void *delta, void *input_delta, bool constant) {
    const batchnorm_gpu *l = job.l;
    return by_storage(job, x, delta, input_delta, [&](auto zero, auto width) {
        using T = decltype(zero);
        LAUNCH((carry_kernel<T, width>), grid_of_planes(job, width), THREADS,
               job.stream)(planes_of(job), l->rule.direct_term, (const T *)x, (const T *)delta, job.mean, job.variance, l->scales,
                           l->mean_delta, l->variance_delta, (T *)input_delta, constant);
    });
}
