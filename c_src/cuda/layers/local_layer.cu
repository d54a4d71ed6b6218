/* Convolutions that share no weights, and transposed ones, in inference: one thread for each output, which sums in the order of
 * c_src/kernels/local.c. */
#include "../convolution.h"
#include "../each.cuh"

namespace {

struct local_value {
    local_shape s;
    const float *input, *weights, *biases;
    float *output;
    __device__ void operator()(size_t i) const {
        size_t pixels = s.out_h * s.out_w, j = i % pixels, f = i / pixels % s.n, depth = s.c * s.size * s.size;
        const float *image = input + i / pixels / s.n * s.c * s.h * s.w, *own = weights + (j * s.n + f) * depth;
        float sum = biases[f * pixels + j];
        for (size_t k = 0; k < depth; ++k) {
            size_t y = j / s.out_w * s.stride + k / s.size % s.size - s.pad, x = j % s.out_w * s.stride + k % s.size - s.pad;
            float value = y < s.h && x < s.w ? image[(k / s.size / s.size * s.h + y) * s.w + x] : 0;
            sum += own[k] * value;
        }
        output[i] = sum;
    }
};

/* Each element of the kernel lays one product at most on an output: a sum over the channels, added to what lies there. */
struct deconvolved_value {
    local_shape s;
    const float *input, *weights;
    float *output;
    __device__ void operator()(size_t i) const {
        size_t pixels = s.out_h * s.out_w, area = s.size * s.size, f = i / pixels % s.n;
        size_t y = i % pixels / s.out_w + s.pad, x = i % s.out_w + s.pad; /* out_w divides a plane */
        const float *image = input + i / pixels / s.n * s.c * s.h * s.w;
        float value = 0;
        for (size_t element = 0; element < area; ++element) {
            size_t up = y - element / s.size, left = x - element % s.size; /* beyond the image where it is below 0 */
            if (up % s.stride || left % s.stride || up / s.stride >= s.h || left / s.stride >= s.w) continue;
            const float *from = image + up / s.stride * s.w + left / s.stride;
            float sum = 0;
            for (size_t c = 0; c < s.c; ++c) sum += weights[(c * s.n + f) * area + element] * from[c * s.h * s.w];
            value += sum;
        }
        output[i] = value;
    }
};

local_shape shape_of(const layer *l) {
    return {l->c, l->h, l->w, l->n, l->out_h, l->out_w, l->size, l->stride_x, l->pad};
}

} // namespace

gpu_status forward_local_layer_gpu(const layer *l, const gpu_arrays *a) {
    gpu_status s = check_arrays(l, a, "a local layer");
    if (s != GPU_OK) return s;
    local_value f = {shape_of(l), a->input, a->weights, a->biases, a->output};
    s = gpu_check(each(a->batch * l->outputs, f, a->stream), "a local layer");
    extent e = {a->batch, l->n, l->out_h * l->out_w};
    if (s != GPU_OK) return s;
    return gpu_check(activate_gpu(a->output, e, l->activation, &l->layer_rule.arithmetic, 0, nullptr, a->stream), "an activation");
}

gpu_status forward_deconvolutional_layer_gpu(const layer *l, const gpu_arrays *a) {
    gpu_status s = check_arrays(l, a, "a deconvolution");
    if (s != GPU_OK) return s;
    deconvolved_value f = {shape_of(l), a->input, a->weights, a->output};
    s = gpu_check(each(a->batch * l->outputs, f, a->stream), "a deconvolution");
    return s == GPU_OK ? finish_sums(l, a, a->output, extent{a->batch, l->n, l->out_h * l->out_w}, 0) : s;
}
