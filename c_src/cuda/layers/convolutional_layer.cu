/* Convolution, then batchnorm or bias, then activation, then a blur, in inference (c_src/layers/convolutional_layer.c). */
#include "../../layers/convolution_shape.h"
#include "../convolution.h"
#include "../each.cuh"

namespace {

enum { LINE = 64, LARGEST_BLUR = 3 * 3 }; /* the matrix begins at a multiple of so many floats, as products like it */

struct blur_value {
    convolution_gpu v;
    float weights[LARGEST_BLUR];
    __device__ void operator()(size_t i) const {
        size_t plane = i / v.pixels;
        window at = window_of(v, v.input + plane * v.image_floats, (unsigned)(i % v.pixels));
        float sum = 0;
        for (unsigned k = 0; k < v.depth; ++k) sum += weights[k] * value_under(v, at, element_of(v, k));
        v.output[i] = sum;
    }
};

/* How the scratch is cut */
struct cut {
    convolution_gpu v;
    size_t sharp, matrix; /* floats of what goes into the blur, and of the matrix */
};

gpu_status cut_scratch(const layer *l, const gpu_arrays *a, cut *c) {
    if (l->xnor) return gpu_fail("a convolution of signs (xnor=1) is not computed on a device; compute on the CPU");
    gpu_status s = describe_convolution(&c->v, shape_of_group(l), a->batch, l->groups);
    if (s != GPU_OK) return s;
    c->sharp = l->blur ? (a->batch * l->blur->inputs + LINE - 1) / LINE * LINE : 0;
    c->matrix = convolution_scratch(c->v, a);
    return GPU_OK;
}

} // namespace

cudaError_t blur_gpu(const layer *blur, size_t batch, const float *input, float *output, void *stream) {
    blur_value f;
    /* each plane by itself; a plane's description does not depend on how many there are */
    if (describe_convolution(&f.v, shape_of_group(blur), 1, 1) != GPU_OK) return cudaErrorInvalidValue;
    f.v.input = input, f.v.output = output;
    for (size_t k = 0; k < f.v.depth; ++k) f.weights[k] = blur_weight(f.v.size, k / f.v.size, k % f.v.size);
    return each(batch * blur->outputs, f, stream);
}

gpu_status scratch_of_convolutional_layer_gpu(const layer *l, const gpu_arrays *a, size_t *floats) {
    cut c;
    *floats = 0;
    gpu_status s = cut_scratch(l, a, &c);
    if (s == GPU_OK) *floats = c.sharp + c.matrix;
    return s;
}

gpu_status forward_convolutional_layer_gpu(const layer *l, const gpu_arrays *a) {
    cut c;
    gpu_status s = cut_scratch(l, a, &c);
    if (s == GPU_OK) s = check_arrays(l, a, "a convolution");
    if (s == GPU_OK && c.sharp + c.matrix && !a->scratch)
        s = gpu_fail("a convolution needs %zu floats of scratch", c.sharp + c.matrix);
    if (s != GPU_OK) return s;
    c.v.input = a->input, c.v.weights = a->weights, c.v.output = l->blur ? a->scratch : a->output;
    s = convolve_gpu(c.v, a, a->scratch + c.sharp);
    if (s == GPU_OK) s = finish_sums(l, a, c.v.output, extent{a->batch, l->n, c.v.pixels}, 1);
    if (s != GPU_OK || !l->blur) return s;
    return gpu_check(blur_gpu(l->blur, a->batch, c.v.output, a->output, a->stream), "a blur");
}
