/* Layers that take a window or a plane together, one thread for each output; see kernels/planes.c and layers/maxpool_layer.c. */
#include <cfloat>

#include "../../kernels/windows.h"
#include "../convolution.h"
#include "../each.cuh"
#include "layers.h"

namespace {

struct window_job {
    maxpool_shape s;
    const float *input;
    float *output;
    __device__ range rows(size_t i) const {
        return covered(i / s.out_w % s.out_h * s.stride_y, s.size, s.padding / 2, s.h);
    }
    __device__ range columns(size_t i) const {
        return covered(i % s.out_w * s.stride_x, s.size, s.padding / 2, s.w);
    }
    __device__ const float *plane(size_t i) const {
        return input + i / (s.out_h * s.out_w) * s.h * s.w;
    }
};

/* The padding counts as -FLT_MAX and a NaN is never larger. */
struct largest_of_window : window_job {
    __device__ void operator()(size_t i) const {
        range down = rows(i), across = columns(i);
        const float *from = plane(i);
        float largest = -FLT_MAX;
        for (size_t y = down.begin; y < down.end; ++y)
            for (size_t x = across.begin; x < across.end; ++x)
                if (from[y * s.w + x] > largest) largest = from[y * s.w + x];
        output[i] = largest;
    }
};

struct mean_of_window : window_job {
    __device__ void operator()(size_t i) const {
        range down = rows(i), across = columns(i);
        const float *from = plane(i);
        float sum = 0;
        size_t counter = 0;
        for (size_t y = down.begin; y < down.end; ++y)
            for (size_t x = across.begin; x < across.end; ++x, ++counter) sum += from[y * s.w + x];
        output[i] = sum / (float)counter;
    }
};

/* The largest of channels k, k + out_c, … */
struct largest_of_channels {
    extent e;
    size_t out_c;
    const float *input;
    float *output;
    __device__ void operator()(size_t i) const {
        size_t plane = i / e.spatial;
        const float *pixel = input + plane / out_c * e.c * e.spatial + i % e.spatial;
        float largest = -FLT_MAX;
        for (size_t k = plane % out_c; k < e.c; k += out_c)
            if (pixel[k * e.spatial] > largest) largest = pixel[k * e.spatial];
        output[i] = largest;
    }
};

enum { WARP = 32, PLANES = EACH_THREADS / WARP };

/* A warp for each plane: its lanes fetch values side by side, and each of them adds all in turn. What lies behind the plane counts as 0,
 * which changes no sum that began with one. */
__global__ void mean_of_plane_kernel(size_t planes, size_t spatial, const float *input, float *output) {
    size_t plane = (size_t)blockIdx.x * PLANES + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (plane >= planes) return;
    float sum = 0;
    for (size_t first = 0; first < spatial; first += WARP) {
        float own = first + lane < spatial ? input[plane * spatial + first + lane] : 0;
        for (int k = 0; k < WARP; ++k) sum += __shfl_sync(~0U, own, k);
    }
    if (lane == 0) output[plane] = sum / (float)spatial;
}

/* output: what it is before a blur */
cudaError_t pool(const layer *l, const gpu_arrays *a, shape out, float *output) {
    size_t n = a->batch * out.c * out.h * out.w;
    if (l->depth) {
        extent e = {a->batch, l->c, l->h * l->w};
        return each(n, largest_of_channels{e, l->out_c, a->input, output}, a->stream);
    }
    maxpool_shape s = {l->c, l->h, l->w, out.h, out.w, l->size, l->stride_x, l->stride_y, l->pad};
    window_job job = {s, a->input, output};
    return l->average ? each(n, mean_of_window{job}, a->stream) : each(n, largest_of_window{job}, a->stream);
}

} // namespace

gpu_status scratch_of_maxpool_layer_gpu(const layer *l, const gpu_arrays *a, size_t *floats) {
    *floats = l->blur ? a->batch * l->blur->inputs : 0;
    return GPU_OK;
}

gpu_status forward_maxpool_layer_gpu(const layer *l, const gpu_arrays *a) {
    const char *name = l->average ? "[local_avgpool]" : "[maxpool]";
    gpu_status status = check_layer(l, a, name);
    if (status != GPU_OK) return status;
    if (!l->blur) return gpu_check(pool(l, a, {l->out_c, l->out_h, l->out_w}, a->output), name);
    if (!a->scratch) return gpu_fail("%s: expected scratch for its blur on the device, got NULL", name);
    cudaError_t error = pool(l, a, {l->blur->c, l->blur->h, l->blur->w}, a->scratch);
    if (error == cudaSuccess) error = blur_gpu(l->blur, a->batch, a->scratch, a->output, a->stream);
    return gpu_check(error, name);
}

gpu_status forward_avgpool_layer_gpu(const layer *l, const gpu_arrays *a) {
    gpu_status status = check_layer(l, a, "[avgpool]");
    if (status != GPU_OK) return status;
    size_t planes = a->batch * l->c;
    unsigned blocks = (unsigned)((planes + PLANES - 1) / PLANES);
    LAUNCH((mean_of_plane_kernel), blocks, EACH_THREADS, (cudaStream_t)a->stream)(planes, l->h * l->w, a->input, a->output);
    return gpu_check(cudaGetLastError(), "[avgpool]");
}
