/* Values of a storage type, read and written as floats, several at a time. */
#ifndef DARKNETBN_STORAGE_CUH
#define DARKNETBN_STORAGE_CUH

#include <cstdint>
#include <cstring>
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

/* What N values that lie beside each other are moved as: one word */
template <int BYTES> struct word;
template <> struct word<16> {
    using type = uint4;
};
template <> struct word<8> {
    using type = uint2;
};
template <> struct word<4> {
    using type = uint32_t;
};
template <> struct word<2> {
    using type = uint16_t;
};

template <typename T, int N> __device__ inline void load(const T *from, float *to) {
    using moved = typename word<sizeof(T) * N>::type;
    moved got = *reinterpret_cast<const moved *>(from);
    T values[N];
    memcpy(values, &got, sizeof got);
#pragma unroll
    for (int i = 0; i < N; ++i) to[i] = to_float(values[i]);
}

template <typename T, int N> __device__ inline void store(const float *from, T *to) {
    using moved = typename word<sizeof(T) * N>::type;
    T values[N];
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = from_float<T>(from[i]);
    moved made;
    memcpy(&made, values, sizeof made);
    __stcg(reinterpret_cast<moved *>(to), made); /* a plain assignment is taken apart here and there */
}

/* How many values fill 16 bytes */
template <typename T> constexpr int widest = 16 / (int)sizeof(T);

/* Whether planes of so many values can be read that many at a time from there */
template <typename T> bool lies_in_packs(const void *array, size_t spatial) {
    return spatial % widest<T> == 0 && reinterpret_cast<uintptr_t>(array) % 16 == 0;
}

#endif
