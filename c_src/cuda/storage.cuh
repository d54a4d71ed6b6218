/* Values of a storage type, read and written as floats, several at a time. */
#ifndef DARKNETBN_STORAGE_CUH
#define DARKNETBN_STORAGE_CUH

#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "darknetbn_cuda.h"

__device__ inline float to_float(float x) {
    return x;
}
__device__ inline float to_float(__half x) {
    return __half2float(x);
}
__device__ inline float to_float(__nv_bfloat16 x) {
    return __bfloat162float(x);
}

template <typename T> __device__ T from_float(float x);
template <> __device__ inline float from_float<float>(float x) {
    return x;
}
template <> __device__ inline __half from_float<__half>(float x) {
    return __float2half_rn(x);
}
template <> __device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
    return __float2bfloat16_rn(x);
}

/* N values that lie beside each other, moved with one load or store */
template <typename T, int N> struct alignas(sizeof(T) * N) pack {
    T values[N];
};

template <typename T, int N> __device__ inline void load(const T *from, float *to) {
    pack<T, N> got = *reinterpret_cast<const pack<T, N> *>(from);
    for (int i = 0; i < N; ++i) to[i] = to_float(got.values[i]);
}

template <typename T, int N> __device__ inline void store(const float *from, T *to) {
    pack<T, N> made;
    for (int i = 0; i < N; ++i) made.values[i] = from_float<T>(from[i]);
    *reinterpret_cast<pack<T, N> *>(to) = made;
}

/* How many values fill 16 bytes */
template <typename T> constexpr int widest = 16 / (int)sizeof(T);

/* Whether planes of so many values can be read that many at a time from there */
template <typename T> bool lies_in_packs(const void *array, size_t spatial) {
    return spatial % widest<T> == 0 && reinterpret_cast<uintptr_t>(array) % 16 == 0;
}

#endif
