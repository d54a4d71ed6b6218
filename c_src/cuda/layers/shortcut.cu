/* Sums of layers; see kernels/shortcut.c and layers/shortcut_layer.c. */
#include "../../kernels/shortcut_weights.h"
#include "../each.cuh"
#include "layers.h"

namespace {

/* The input and one source of as many values */
struct add_value {
    const float *input, *source;
    float *output;
    __device__ void operator()(size_t i) const {
        output[i] = input[i] + source[i];
    }
};

/* As shortcut_cpu: where the source has a value, alpha * input + beta * that; elsewhere the input */
struct add_scaled_value {
    shape from, to, common;
    size_t stride, sample;
    float alpha, beta;
    const float *input, *source;
    float *output;
    __device__ void operator()(size_t i) const {
        size_t x = i % to.w, y = i / to.w % to.h, k = i / (to.w * to.h) % to.c, b = i / (to.w * to.h) / to.c;
        bool sampled = x % sample == 0 && y % sample == 0;
        x /= sample, y /= sample;
        output[i] = input[i];
        if (!sampled || x >= common.w || y >= common.h || k >= common.c) return;
        output[i] = alpha * input[i] + beta * source[x * stride + from.w * (y * stride + from.h * (k + from.c * b))];
    }
};

/* Layer number i of the sum, the first `common` values of each image */
struct add_weighted_value {
    shortcut_sum s;
    size_t i, common, floats;
    const float *from;
    float *output;
    __device__ void operator()(size_t at) const {
        const elementary own = {};
        size_t b = at / common, o = at % common;
        float w = s.weights ? normalized_weight(&s, i, o, &own) : 1, product = from[b * floats + o] * w;
        float *out = output + b * s.outputs + o;
        *out = i ? *out + product : product;
    }
};

size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

size_t ratio(size_t large, size_t small) {
    return large / small ? large / small : 1;
}

cudaError_t add_scaled(const layer *l, const gpu_arrays *a) {
    shape from = l->sources[0], to = {l->c, l->h, l->w};
    shape common = {smaller(from.c, to.c), smaller(from.h, to.h), smaller(from.w, to.w)};
    add_scaled_value f = {from,     to,      common,   ratio(from.w, to.w), ratio(to.w, from.w),
                          l->alpha, l->beta, a->input, a->sources[0],       a->output};
    return each(a->batch * l->outputs, f, a->stream);
}

/* One layer after another, as the sum of each value goes */
cudaError_t add_weighted(const layer *l, const gpu_arrays *a) {
    shortcut_sum s = {l->n_sources, l->outputs, l->outputs, NULL, NULL, NULL, l->weights_normalization};
    if (l->nweights) s.weights = a->weights, s.weights_step = l->outputs / (l->nweights / (l->n_sources + 1));
    cudaError_t error = cudaSuccess;
    for (size_t i = 0; i <= l->n_sources && error == cudaSuccess; ++i) {
        shape from = i ? l->sources[i - 1] : shape{l->c, l->h, l->w};
        size_t floats = from.c * from.h * from.w, common = smaller(floats, l->outputs);
        add_weighted_value f = {s, i, common, floats, i ? a->sources[i - 1] : a->input, a->output};
        error = each(a->batch * common, f, a->stream);
    }
    return error;
}

cudaError_t add_sources(const layer *l, const gpu_arrays *a) {
    if (l->linear_sum) return each(a->batch * l->outputs, add_value{a->input, a->sources[0], a->output}, a->stream);
    return l->nweights || l->n_sources > 1 ? add_weighted(l, a) : add_scaled(l, a);
}

} // namespace

gpu_status forward_shortcut_layer_gpu(const layer *l, const gpu_arrays *a) {
    gpu_status status = check_layer(l, a, "[shortcut]");
    if (status != GPU_OK) return status;
    if (l->nweights && !a->weights) return gpu_fail("[shortcut]: expected weights on the device, got NULL");
    cudaError_t error = add_sources(l, a);
    extent e = {a->batch, l->c, l->h * l->w};
    if (error == cudaSuccess) error = activate_gpu(a->output, e, l->activation, &l->layer_rule.arithmetic, 1, NULL, a->stream);
    return gpu_check(error, "[shortcut]");
}
