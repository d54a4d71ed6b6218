/* How a convolution is described for the device, which way its sums go, and what follows them. */
#include <climits>

#include "convolution.h"

gpu_status describe_convolution(convolution_gpu *v, const convolution_shape &s, size_t batch, size_t groups) {
    size_t h = s.direct ? s.out_h : s.h, w = s.direct ? s.out_w : s.w, pad_y = s.direct ? 0 : s.pad_y,
           pad_x = s.direct ? 0 : s.pad_x;
    size_t area = s.size * s.size, pixels = s.out_h * s.out_w; /* a layer that was made has sizes whose products fit */
    const double images = (double)batch, values = (double)s.c * (double)h * (double)w, depth = (double)s.c * (double)area;
    const double sizes[] = {values,
                            (double)(h + 2 * pad_y),
                            (double)(w + 2 * pad_x),
                            images * (double)pixels,
                            images * (double)groups * (double)s.n,
                            (double)groups * depth};
    for (double size : sizes)
        if (size > INT_MAX)
            return gpu_fail(
                "a convolution of %zu x %zu x %zu in a batch of %zu is too large for a device; give a smaller batch or image",
                s.c * groups, s.h, s.w, batch);
    *v = {};
    v->c = (unsigned)s.c, v->h = (unsigned)h, v->w = (unsigned)w, v->n = (unsigned)s.n, v->size = (unsigned)s.size;
    v->pixels = (unsigned)pixels, v->out_w = (unsigned)s.out_w;
    v->stride_x = s.direct ? 1 : (unsigned)s.stride_x, v->stride_y = s.direct ? 1 : (unsigned)s.stride_y;
    v->pad_x = (unsigned)pad_x, v->pad_y = (unsigned)pad_y, v->dilation = (unsigned)s.dilation;
    v->depth = (unsigned)(s.c * area), v->columns = (unsigned)(batch * pixels);
    v->images = (unsigned)batch, v->groups = (unsigned)groups, v->group_floats = s.c * s.h * s.w;
    v->image_floats = groups * v->group_floats;
    return GPU_OK;
}

gpu_status check_arrays(const layer *l, const gpu_arrays *a, const char *what) {
    if (!a->batch) return gpu_fail("%s needs a batch of 1 image or more", what);
    bool normalizes = l->batchnorm, there = a->input && a->output && a->weights && a->biases;
    if (normalizes) there = there && a->scales && a->rolling_mean && a->rolling_variance;
    if (!there) return gpu_fail("%s needs its input, output and parameters on the device", what);
    return GPU_OK;
}

/* Tiles of few filters would be mostly empty, and a matrix of their columns is more than their sums. */
static bool is_narrow(const convolution_gpu &v) {
    return v.n < NARROW;
}

size_t convolution_scratch(const convolution_gpu &v, const gpu_arrays *a) {
    return a->blas && !is_narrow(v) ? blas_floats(a->blas, v) : 0;
}

gpu_status convolve_gpu(const convolution_gpu &v, const gpu_arrays *a, float *matrix) {
    cudaStream_t stream = (cudaStream_t)a->stream;
    if (a->plain || is_narrow(v)) return gpu_check(convolve_plain_gpu(v, stream), "a convolution");
    if (a->blas) return convolve_blas_gpu(a->blas, v, matrix, stream);
    return gpu_check(convolve_tiled_gpu(v, stream), "a convolution");
}

gpu_status finish_sums(const layer *l, const gpu_arrays *a, float *x, extent e, int host) {
    gpu_status s = GPU_OK;
    if (l->batchnorm) s = gpu_check(normalize_gpu(x, e, &l->batchnorm->batchnorm_rule, a, x), "a batch normalization");
    if (s != GPU_OK) return s;
    const float *biases = l->batchnorm ? nullptr : a->biases;
    return gpu_check(activate_gpu(x, e, l->activation, &l->layer_rule.arithmetic, host, biases, a->stream), "an activation");
}
