/* CUDA's half as far as the library uses it */
#ifndef EMULATED_CUDA_FP16_H
#define EMULATED_CUDA_FP16_H

struct __half {
    _Float16 value;
};

inline float __half2float(__half x) {
    return (float)x.value;
}

inline __half __float2half_rn(float x) {
    return {(_Float16)x};
}

#endif
