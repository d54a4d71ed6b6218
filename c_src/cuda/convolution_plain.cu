/* One thread for each output of a convolution: the specification of convolution_tiles.cu, and the way of convolutions with few filters,
 * above all those of each channel by itself. */
#include "convolution.h"

namespace {

constexpr size_t THREADS = 256, MOST_BLOCKS = 1 << 20;

__global__ void convolve_plain_kernel(convolution_gpu v) {
    size_t all = (size_t)v.images * v.groups * v.n * v.pixels, step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += step) {
        size_t filter = i / v.pixels % ((size_t)v.groups * v.n), group = filter / v.n;
        size_t image = i / v.pixels / v.n / v.groups;
        window at = window_of(v, v.input + image * v.image_floats + group * v.group_floats, (unsigned)(i % v.pixels));
        const float *weights = v.weights + filter * v.depth;
        float sum = 0;
        unsigned k = 0;
        for (unsigned channel = 0; channel < v.c; ++channel)
            for (unsigned row = 0; row < v.size; ++row)
                for (unsigned column = 0; column < v.size; ++column, ++k) {
                    element e = {channel, (int)(row * v.dilation), (int)(column * v.dilation)};
                    sum += weights[k] * value_under(v, at, e);
                }
        v.output[i] = sum;
    }
}

} // namespace

cudaError_t convolve_plain_gpu(const convolution_gpu &v, cudaStream_t stream) {
    size_t blocks = ((size_t)v.images * v.groups * v.n * v.pixels + THREADS - 1) / THREADS;
    LAUNCH((convolve_plain_kernel), (unsigned)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS), THREADS, stream)(v);
    return cudaGetLastError();
}
