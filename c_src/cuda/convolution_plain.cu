/* One thread for each output of a convolution: the specification of convolution_tiles.cu, and the way of convolutions with few filters,
 * above all those of each channel by itself. */
#include "convolution.h"

namespace {

constexpr size_t THREADS = 128, MOST_ROWS = 65535;

/* grid: pixels of a plane, planes (image, group, filter) */
__global__ void convolve_plain_kernel(convolution_gpu v) {
    unsigned pixel = blockIdx.x * blockDim.x + threadIdx.x, filters = v.groups * v.n;
    if (pixel >= v.pixels) return;
    for (unsigned plane = blockIdx.y; plane < v.images * filters; plane += gridDim.y) {
        unsigned image = plane / filters, filter = plane % filters;
        window at = window_of(v, v.input + image * v.image_floats + filter / v.n * v.group_floats, pixel);
        const float *weights = v.weights + (size_t)filter * v.depth;
        float sum = 0;
        unsigned k = 0;
        for (unsigned channel = 0; channel < v.c; ++channel)
            for (unsigned row = 0; row < v.size; ++row)
                for (unsigned column = 0; column < v.size; ++column, ++k) {
                    element e = {channel, (int)(row * v.dilation), (int)(column * v.dilation)};
                    sum += weights[k] * value_under(v, at, e);
                }
        v.output[(size_t)plane * v.pixels + pixel] = sum;
    }
}

} // namespace

cudaError_t convolve_plain_gpu(const convolution_gpu &v, cudaStream_t stream) {
    size_t planes = (size_t)v.images * v.groups * v.n;
    dim3 grid((unsigned)((v.pixels + THREADS - 1) / THREADS), (unsigned)(planes < MOST_ROWS ? planes : MOST_ROWS));
    LAUNCH((convolve_plain_kernel), grid, THREADS, stream)(v);
    return cudaGetLastError();
}
