/* Layers that move values about; see kernels/planes.c, layers/route_layer.c, reorg_layer.c and crop_layer.c. */
#include "../each.cuh"
#include "layers.h"

namespace {

/* An image's part of a source goes behind those of the sources before. */
struct join_value {
    size_t part, floats, first, outputs, offset; /* of the source: values taken, all, the first taken; of the output */
    const float *source;
    float *output;
    __device__ void operator()(size_t i) const {
        size_t b = i / part, k = i % part;
        output[b * outputs + offset + k] = source[b * floats + first + k];
    }
};

/* Of a small image with the sizes h and w, by one thread for each value of the large one; or, the other way round, for each of the
 * small one, the sum of its block row by row. */
struct scaling {
    size_t h, w, stride;
    float scale;
    const float *input;
    float *output;
};

struct upsample_value : scaling {
    __device__ void operator()(size_t i) const {
        size_t row = i / (w * stride), column = i % (w * stride);
        output[i] = scale * input[row / stride * w + column / stride];
    }
};

struct downsample_value : scaling {
    __device__ void operator()(size_t i) const {
        const float *block = input + (i / w * w * stride + i % w) * stride;
        float sum = 0;
        for (size_t y = 0; y < stride; ++y)
            for (size_t x = 0; x < stride; ++x) sum += scale * block[y * w * stride + x];
        output[i] = sum;
    }
};

/* As reorg_cpu, one thread for each value of (batch, c, h, w) */
struct reorg_value {
    size_t c, h, w, stride;
    bool scatter;
    const float *input;
    float *output;
    __device__ void operator()(size_t i) const {
        size_t small_c = c / (stride * stride), k = i / (h * w) % c, b = i / (h * w) / c, offset = k / small_c;
        size_t x = i % w * stride + offset % stride, y = i / w % h * stride + offset / stride;
        size_t large = x + w * stride * (y + h * stride * (k % small_c + small_c * b));
        if (scatter)
            output[large] = input[i];
        else
            output[i] = input[large];
    }
};

/* (layers, size) to (size, layers), or back; one thread for each value of the first */
struct flatten_value {
    size_t size, layers;
    bool forward;
    const float *input;
    float *output;
    __device__ void operator()(size_t i) const {
        size_t b = i / size / layers, flat = (b * size + i % size) * layers + i / size % layers;
        if (forward)
            output[flat] = input[i];
        else
            output[i] = input[flat];
    }
};

struct pad_value {
    size_t inputs, outputs;
    const float *input;
    float *output;
    __device__ void operator()(size_t i) const {
        size_t k = i % outputs;
        output[i] = k < inputs ? input[i / outputs * inputs + k] : 0;
    }
};

struct crop_value {
    size_t h, w, out_h, out_w;
    float scale, shift;
    const float *input;
    float *output;
    __device__ void operator()(size_t i) const {
        size_t plane = i / (out_h * out_w), row = i / out_w % out_h + (h - out_h) / 2, column = i % out_w + (w - out_w) / 2;
        output[i] = input[(plane * h + row) * w + column] * scale + shift;
    }
};

} // namespace

gpu_status forward_route_layer_gpu(const layer *l, const gpu_arrays *a) {
    gpu_status status = check_layer(l, a, "[route]", false);
    if (status != GPU_OK) return status;
    cudaError_t error = cudaSuccess;
    size_t offset = 0;
    for (size_t i = 0; i < l->n_sources && error == cudaSuccess; ++i) {
        size_t floats = l->sources[i].c * l->sources[i].h * l->sources[i].w, part = floats / l->groups;
        join_value f = {part, floats, part * l->group_id, l->outputs, offset, a->sources[i], a->output};
        error = each(a->batch * part, f, a->stream);
        offset += part;
    }
    return gpu_check(error, "[route]");
}

gpu_status forward_upsample_layer_gpu(const layer *l, const gpu_arrays *a) {
    gpu_status status = check_layer(l, a, "[upsample]");
    if (status != GPU_OK) return status;
    size_t n = a->batch * l->outputs, h = l->reverse ? l->out_h : l->h, w = l->reverse ? l->out_w : l->w;
    scaling s = {h, w, l->stride_x, l->scale, a->input, a->output};
    cudaError_t error = l->reverse ? each(n, downsample_value{s}, a->stream) : each(n, upsample_value{s}, a->stream);
    return gpu_check(error, "[upsample]");
}

static cudaError_t reorganize(const layer *l, const gpu_arrays *a) {
    size_t n = a->batch * l->outputs, pixels = l->h * l->w;
    if (!l->stride_x) return each(n, pad_value{l->inputs, l->outputs, a->input, a->output}, a->stream);
    if (l->flatten) return each(n, flatten_value{pixels, l->c, !l->reverse, a->input, a->output}, a->stream);
    bool scatter = l->reverse != 0;
    reorg_value f = {l->c, l->h, l->w, l->stride_x, scatter, a->input, a->output};
    if (l->true_order) f.c = l->out_c, f.h = l->out_h, f.w = l->out_w;
    return each(n, f, a->stream);
}

gpu_status forward_reorg_layer_gpu(const layer *l, const gpu_arrays *a) {
    const char *name = l->true_order ? "[reorg3d]" : "[reorg]";
    gpu_status status = check_layer(l, a, name);
    return status == GPU_OK ? gpu_check(reorganize(l, a), name) : status;
}

gpu_status forward_crop_layer_gpu(const layer *l, const gpu_arrays *a) {
    gpu_status status = check_layer(l, a, "[crop]");
    if (status != GPU_OK) return status;
    crop_value f = {l->h, l->w, l->out_h, l->out_w, l->alpha, l->beta, a->input, a->output};
    return gpu_check(each(a->batch * l->outputs, f, a->stream), "[crop]");
}
