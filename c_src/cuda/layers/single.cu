/* Layers that change each value, or each pixel, by itself; see layers/activation_layer.c, scale_channels_layer.c and implicit_layer.c. */
#include <cmath>
#include <cstdint>

#include "../each.cuh"
#include "layers.h"

gpu_status check_layer(const layer *l, const gpu_arrays *a, const char *name, bool has_input) {
    if (!a->batch || l->outputs > SIZE_MAX / sizeof(float) / a->batch || l->inputs > SIZE_MAX / sizeof(float) / a->batch)
        return gpu_fail("%s: expected a batch of 1 or more images that fit into memory, got %zu", name, a->batch);
    if (!a->output || (has_input && !a->input))
        return gpu_fail("%s: expected an input and an output on the device, got NULL", name);
    for (size_t i = 0; i < l->n_sources; ++i)
        if (!a->sources || !a->sources[i]) return gpu_fail("%s: expected its source %zu on the device, got NULL", name, i);
    return GPU_OK;
}

cudaError_t copy_input(const layer *l, const gpu_arrays *a) {
    return cudaMemcpyAsync(a->output, a->input, a->batch * l->outputs * sizeof(float), cudaMemcpyDeviceToDevice,
                           (cudaStream_t)a->stream);
}

namespace {

/* As l2normalize_cpu */
struct l2normalize_pixel {
    extent e;
    const float *input;
    float *output;
    __device__ void operator()(size_t i) const {
        size_t at = i / e.spatial * e.c * e.spatial + i % e.spatial;
        float sum = 0;
        for (size_t k = 0; k < e.c; ++k) sum += input[at + k * e.spatial] * input[at + k * e.spatial];
        sum = sqrtf(sum);
        for (size_t k = 0; k < e.c; ++k) output[at + k * e.spatial] = input[at + k * e.spatial] / sum;
    }
};

/* As scale_channels_cpu: a scale for each plane of x; for each pixel, whatever its channel; or for each value */
enum scaled { EACH_PLANE, EACH_PIXEL, EACH_VALUE };

struct scale_value {
    extent e;
    scaled by;
    const float *x, *scales;
    float *output;
    __device__ void operator()(size_t i) const {
        size_t plane = i / e.spatial, pixel = plane / e.c * e.spatial + i % e.spatial;
        output[i] = scales[by == EACH_PLANE ? plane : by == EACH_PIXEL ? pixel : i] * x[i];
    }
};

struct repeat_weight {
    size_t n;
    const float *weights;
    float *output;
    __device__ void operator()(size_t i) const {
        output[i] = weights[i % n];
    }
};

gpu_status activate_copy(const layer *l, const gpu_arrays *a, const char *name) {
    gpu_status s = check_layer(l, a, name);
    if (s != GPU_OK) return s;
    cudaError_t error = copy_input(l, a);
    extent e = {a->batch, l->c, l->h * l->w};
    if (error == cudaSuccess) error = activate_gpu(a->output, e, l->activation, &l->layer_rule.arithmetic, 0, NULL, a->stream);
    return gpu_check(error, name);
}

gpu_status scale_source(const layer *l, const gpu_arrays *a, const char *name, scaled by) {
    gpu_status s = check_layer(l, a, name);
    if (s != GPU_OK) return s;
    extent e = extent_of_output(l, a);
    cudaError_t error = each(a->batch * l->outputs, scale_value{e, by, a->sources[0], a->input, a->output}, a->stream);
    if (error == cudaSuccess) error = activate_gpu(a->output, e, l->activation, &l->layer_rule.arithmetic, 0, NULL, a->stream);
    return gpu_check(error, name);
}

} // namespace

gpu_status forward_activation_layer_gpu(const layer *l, const gpu_arrays *a) {
    return activate_copy(l, a, "[activation]");
}

gpu_status forward_logistic_layer_gpu(const layer *l, const gpu_arrays *a) {
    return activate_copy(l, a, "[logistic]");
}

gpu_status forward_l2norm_layer_gpu(const layer *l, const gpu_arrays *a) {
    gpu_status s = check_layer(l, a, "[l2norm]");
    if (s != GPU_OK) return s;
    extent e = extent_of_output(l, a);
    return gpu_check(each(e.batch * e.spatial, l2normalize_pixel{e, a->input, a->output}, a->stream), "[l2norm]");
}

gpu_status forward_standalone_batchnorm_layer_gpu(const layer *l, const gpu_arrays *a) {
    gpu_status s = check_layer(l, a, "[batchnorm]");
    if (s != GPU_OK) return s;
    if (!a->scales || !a->biases || !a->rolling_mean || !a->rolling_variance)
        return gpu_fail("[batchnorm]: expected scales, biases and rolling arrays on the device, got NULL");
    return gpu_check(normalize_gpu(a->input, extent_of_output(l, a), &l->batchnorm_rule, a, a->output), "[batchnorm]");
}

gpu_status forward_scale_channels_layer_gpu(const layer *l, const gpu_arrays *a) {
    return scale_source(l, a, "[scale_channels]", l->scale_wh ? EACH_PIXEL : EACH_PLANE);
}

gpu_status forward_sam_layer_gpu(const layer *l, const gpu_arrays *a) {
    return scale_source(l, a, "[sam]", EACH_VALUE);
}

gpu_status forward_implicit_layer_gpu(const layer *l, const gpu_arrays *a) {
    gpu_status s = check_layer(l, a, "[implicit]", false);
    if (s != GPU_OK) return s;
    if (!a->weights) return gpu_fail("[implicit]: expected weights on the device, got NULL");
    return gpu_check(each(a->batch * l->outputs, repeat_weight{l->outputs, a->weights, a->output}, a->stream), "[implicit]");
}
