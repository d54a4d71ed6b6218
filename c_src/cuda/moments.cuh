/* The arithmetic of the fast kernels: moments that are merged instead of subtracted, so that a large mean does not cancel a small
 * variance. R: float within one device, double for what several exchange. */
#ifndef DARKNETBN_MOMENTS_CUH
#define DARKNETBN_MOMENTS_CUH

#include "../kernels/device_batchnorm.h"

/* Of some values: how many, their mean, and the sum of (x - mean)^2 */
template <typename R> struct part_moments {
    R n, mean, squares;
};

/* Those of two parts together (Chan, Golub and LeVeque 1979) */
template <typename R> __device__ inline part_moments<R> together(part_moments<R> a, part_moments<R> b) {
    if (b.n == 0) return a;
    if (a.n == 0) return b;
    part_moments<R> both = {a.n + b.n, 0, 0};
    R apart = b.mean - a.mean, share = b.n / both.n;
    both.mean = a.mean + apart * share;
    both.squares = a.squares + b.squares + apart * apart * (a.n * share);
    return both;
}

/* Of the first count of MOST values that lie in registers, in two passes */
template <typename R, int MOST> __device__ inline part_moments<R> moments_of_values(const float *values, int count) {
    part_moments<R> m = {(R)count, 0, 0};
    R sum = 0;
#pragma unroll
    for (int i = 0; i < MOST; ++i)
        if (i < count) sum += (R)values[i];
    m.mean = sum / m.n;
#pragma unroll
    for (int i = 0; i < MOST; ++i) {
        if (i >= count) continue;
        R off = (R)values[i] - m.mean;
        m.squares += off * off;
    }
    return m;
}

/* Over n or n - 1 */
template <typename R> __device__ inline float variance_of(part_moments<R> m, denominator d) {
    return (float)(m.squares / (d == DENOMINATOR_N ? m.n : m.n - 1));
}

/* Of a channel's deltas, and of delta * (x - mean) */
template <typename R> struct part_sums {
    R delta, off;
};

template <typename R> __device__ inline part_sums<R> together(part_sums<R> a, part_sums<R> b) {
    return {a.delta + b.delta, a.off + b.off};
}

/* What one channel's deltas are multiplied by: delta * direct + (x - mean) * per_off + third */
struct alignas(16) fast_terms {
    float mean, direct, per_off, third;
};

__device__ inline float fast_delta(const fast_terms &t, float x, float delta) {
    return delta * t.direct + (x - t.mean) * t.per_off + t.third;
}

#endif
