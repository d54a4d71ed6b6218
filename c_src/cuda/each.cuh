/* One thread for each of some values. */
#ifndef DARKNETBN_EACH_CUH
#define DARKNETBN_EACH_CUH

#include "gpu.h"

enum { EACH_THREADS = 256 };

template <typename F> __global__ void each_kernel(size_t n, F f) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) f(i);
}

/* f(i) on the device for each i below n; f is a struct of values and of pointers into the device's memory. */
template <typename F> cudaError_t each(size_t n, const F &f, void *stream) {
    unsigned blocks = (unsigned)((n + EACH_THREADS - 1) / EACH_THREADS);
    if (blocks) LAUNCH((each_kernel<F>), blocks, EACH_THREADS, (cudaStream_t)stream)(n, f);
    return cudaGetLastError();
}

#endif
