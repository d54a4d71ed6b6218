/* The values of a channel, dealt to the threads of several blocks, and what becomes of the blocks' parts. */
#ifndef DARKNETBN_CHANNELS_CUH
#define DARKNETBN_CHANNELS_CUH

#include <type_traits>

#include "gpu.h"
#include "moments.cuh"
#include "storage.cuh"

enum { CHANNEL_THREADS = 256, WARP = 32 };
/* Packs of 16 bytes that a thread asks for before it uses the first: the memory is far away */
enum { PACKS_OF_ONE = 4, PACKS_OF_TWO = 2 };

struct planes {
    size_t batch, c, spatial;
};

/* A number that the compiler knows */
template <int K> struct constant {
    __device__ constexpr operator int() const {
        return K;
    }
};

/* ---- walking ---------------------------------------------------------------------------------------------------------------------- */

/* Calls take(offsets, count) with the offsets of up to U packs of N values of this thread, until none is left. count is U itself as
 * a constant where it can be. Grid: splits, channels. */
template <int N, int U, typename F> __device__ inline void over_channel(const planes &s, size_t f, F take) {
    size_t per_plane = s.spatial / N;
    /* a plane of more packs than fit in 32 bits is longer than the step, so that the quotients are 0 as they should be */
    unsigned per = per_plane < ~0U ? (unsigned)per_plane : ~0U;
    unsigned step = gridDim.x * CHANNEL_THREADS, first = blockIdx.x * CHANNEL_THREADS + threadIdx.x;
    size_t b = first / per, i = first % per, more_b = step / per, more_i = step % per;
    size_t at = (b * s.c + f) * s.spatial + i * N;
    size_t more = more_b * s.c * s.spatial + more_i * N, wrap = (s.c - 1) * s.spatial;
    while (b < s.batch) {
        size_t offsets[U];
        int count = 0;
#pragma unroll
        for (int u = 0; u < U; ++u) {
            offsets[u] = at, count += b < s.batch;
            b += more_b, i += more_i, at += more;
            if (i >= per_plane) i -= per_plane, ++b, at += wrap;
        }
        if (count == U)
            take(offsets, constant<U>());
        else
            take(offsets, count);
    }
}

/* values[u * N] onwards becomes pack u. */
template <typename T, int N, int U>
__device__ inline void load_packs(const T *from, const size_t *offsets, int count, float *values) {
#pragma unroll
    for (int u = 0; u < U; ++u)
        if (u < count) load<T, N>(from + offsets[u], values + u * N);
}

/* ---- merging ---------------------------------------------------------------------------------------------------------------------- */

template <typename R> __device__ inline part_moments<R> from_lane(part_moments<R> m, int offset) {
    return {__shfl_down_sync(~0U, m.n, offset), __shfl_down_sync(~0U, m.mean, offset), __shfl_down_sync(~0U, m.squares, offset)};
}

template <typename R> __device__ inline part_sums<R> from_lane(part_sums<R> s, int offset) {
    return {__shfl_down_sync(~0U, s.delta, offset), __shfl_down_sync(~0U, s.off, offset)};
}

/* Thread 0 gets what all threads of the block have together. Between two calls there has to be a __syncthreads(). */
template <typename P> __device__ inline P of_block(P own) {
    __shared__ P warps[CHANNEL_THREADS / WARP];
    for (int offset = WARP / 2; offset; offset /= 2) own = together(own, from_lane(own, offset));
    if (threadIdx.x % WARP == 0) warps[threadIdx.x / WARP] = own;
    __syncthreads();
    for (int w = 1; threadIdx.x == 0 && w < CHANNEL_THREADS / WARP; ++w) own = together(own, warps[w]);
    return own;
}

/* The parts of all blocks of a channel, merged by the one that comes last in an order that is always the same: true in its thread 0,
 * which then has all in own. arrived: 0 for each channel, and left so. */
template <typename P> __device__ inline bool of_channel(P *own, size_t f, P *partials, unsigned *arrived) {
    __shared__ bool last;
    *own = of_block(*own);
    if (gridDim.x == 1) return threadIdx.x == 0;
    P *parts = partials + f * gridDim.x;
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = *own;
        __threadfence(); /* the part is there before the block counts as arrived */
        last = atomicInc(arrived + f, gridDim.x - 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!last) return false;
    P part = {};
    if (threadIdx.x < gridDim.x) part = parts[threadIdx.x];
    *own = of_block(part);
    return threadIdx.x == 0;
}

/* ---- the two passes that only read ------------------------------------------------------------------------------------------------ */

/* finish(f, moments) once for each channel. Grid: splits, c */
template <typename R, typename T, int N, typename F>
__global__ void __launch_bounds__(CHANNEL_THREADS)
    moments_kernel(planes s, const T *__restrict__ x, part_moments<R> *partials, unsigned *arrived, F finish) {
    enum { U = PACKS_OF_ONE };
    part_moments<R> own = {0, 0, 0};
    size_t f = blockIdx.y;
    over_channel<N, U>(s, f, [&](const size_t *offsets, auto count) {
        float values[U * N];
        load_packs<T, N, U>(x, offsets, count, values);
        own = together(own, moments_of_values<R, U * N>(values, count * N));
    });
    if (of_channel(&own, f, partials, arrived)) finish(f, own);
}

/* finish(f, sums) once for each channel */
template <typename R, typename T, int N, typename F>
__global__ void __launch_bounds__(CHANNEL_THREADS)
    sums_kernel(planes s, const T *__restrict__ x, const T *__restrict__ delta, const float *mean, part_sums<R> *partials,
                unsigned *arrived, F finish) {
    enum { U = PACKS_OF_TWO };
    part_sums<R> own = {0, 0};
    size_t f = blockIdx.y;
    R middle = mean[f];
    over_channel<N, U>(s, f, [&](const size_t *offsets, auto count) {
        float values[U * N], deltas[U * N];
        load_packs<T, N, U>(x, offsets, count, values);
        load_packs<T, N, U>(delta, offsets, count, deltas);
#pragma unroll
        for (int k = 0; k < U * N; ++k)
            if (k < count * N) own.delta += (R)deltas[k], own.off += (R)deltas[k] * ((R)values[k] - middle);
    });
    if (of_channel(&own, f, partials, arrived)) finish(f, own);
}

/* ---- how they are called ---------------------------------------------------------------------------------------------------------- */

/* Planes without a value are none. */
inline planes planes_of(const gpu_job &job) {
    if (!job.spatial) return {0, job.l->c, 16};
    return {job.batch, job.l->c, job.spatial};
}

inline size_t quotient_up(size_t n, size_t by) {
    return (n + by - 1) / by;
}

/* Blocks for each channel: as many as keep the device busy, each with something to do. At most as many as a block has threads, and
 * together at most WANTED_BLOCKS and one for each channel. */
inline dim3 grid_of_channels(const gpu_job &job, int width) {
    size_t most = quotient_up(job.batch * (job.spatial / width), (size_t)CHANNEL_THREADS * PACKS_OF_ONE);
    size_t splits = quotient_up(WANTED_BLOCKS, job.l->c);
    splits = splits < most ? splits : most;
    const size_t threads = CHANNEL_THREADS;
    splits = splits < threads ? splits : threads;
    return {(unsigned)(splits ? splits : 1), (unsigned)job.l->c};
}

/* launch(a value of the storage type, how many lie in a pack): the widest packs where all arrays lie in them, else value by value */
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

#endif
