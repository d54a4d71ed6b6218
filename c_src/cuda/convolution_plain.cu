/* One thread for each output of a convolution: the specification of convolution_tiles.cu, and the way of convolutions with few filters,
 * above all those of each channel by itself. */
#include <climits>

#include "convolution.h"

namespace {

constexpr size_t THREADS = 256, MOST_BLOCKS = 1 << 20;

__global__ void convolve_plain_kernel(convolution_gpu v) {
    size_t all = (size_t)v.images * v.groups * v.n * v.pixels, step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += step) {
        size_t filter = i / v.pixels % ((size_t)v.groups * v.n), group = filter / v.n;
        size_t image = i / v.pixels / v.n / v.groups;
        window at = window_of(v, v.input + image * v.image_floats + group * v.c * v.h * v.w, (unsigned)(i % v.pixels));
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

gpu_status describe_convolution(convolution_gpu *v, const convolution_shape &s, size_t batch, size_t groups) {
    size_t h = s.direct ? s.out_h : s.h, w = s.direct ? s.out_w : s.w, pad_y = s.direct ? 0 : s.pad_y, pad_x = s.direct ? 0 : s.pad_x;
    size_t area = s.size * s.size, pixels = s.out_h * s.out_w; /* the layer that there is has sizes whose products fit */
    const double most = INT_MAX, sizes[] = {(double)s.c * (double)h * (double)w, (double)(h + 2 * pad_y), (double)(w + 2 * pad_x),
                                            (double)s.c * (double)area,          (double)s.n,             (double)batch * (double)pixels,
                                            (double)groups};
    for (double size : sizes)
        if (size > most) return gpu_fail("a convolution of %zu x %zu x %zu, batch %zu, is too large for a device", s.c, s.h, s.w, batch);
    *v = {};
    v->c = (unsigned)s.c, v->h = (unsigned)h, v->w = (unsigned)w, v->n = (unsigned)s.n, v->size = (unsigned)s.size;
    v->pixels = (unsigned)pixels, v->out_w = (unsigned)s.out_w;
    v->stride_x = s.direct ? 1 : (unsigned)s.stride_x, v->stride_y = s.direct ? 1 : (unsigned)s.stride_y;
    v->pad_x = (unsigned)pad_x, v->pad_y = (unsigned)pad_y, v->dilation = (unsigned)s.dilation;
    v->depth = (unsigned)(s.c * area), v->columns = (unsigned)(batch * pixels);
    v->images = (unsigned)batch, v->groups = (unsigned)groups, v->image_floats = groups * s.c * s.h * s.w;
    return GPU_OK;
}
