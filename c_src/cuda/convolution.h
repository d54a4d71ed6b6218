/* The sums of convolutions on the device, what layers/ and the kernels of them share. */
#ifndef DARKNETBN_CUDA_CONVOLUTION_H
#define DARKNETBN_CUDA_CONVOLUTION_H

#include "gpu.h"

/* A convolution_shape of one group, in numbers for 32 bits, and its arrays. Where the image is the matrix itself, it is described as
 * the convolution of one pixel that reads it so. */
struct convolution_gpu {
    unsigned c, h, w, n, pixels, out_w, size, stride_x, stride_y, pad_x, pad_y, dilation;
    unsigned depth, columns; /* c * size * size; pixels of all images */
    unsigned images, groups;
    size_t image_floats, group_floats; /* from an image, or from a group of its channels, to the next */
    const float *input, *weights;
    float *output; /* (images, groups, n, pixels) */
};

/* out = 0 + sum over k of weights[f][k] * column[k][j], k = (channel, row, column) from 0 upwards, each product and each sum rounded to
 * float by itself, zeros of the padding too: the bits of convolve() on the CPU.
 *   plain   one thread for each output, which specifies it
 *   tiled   a block for a tile of filters and pixels, through shared memory */
cudaError_t convolve_plain_gpu(const convolution_gpu &v, cudaStream_t stream);
cudaError_t convolve_tiled_gpu(const convolution_gpu &v, cudaStream_t stream);

/* The product of matrices by cuBLAS, which sums in an order of its own; matrix: blas_floats() of room, 0 where the image is the matrix.
 * connect: of one group and images of one pixel, all images at once */
size_t blas_floats(const gpu_blas *blas, const convolution_gpu &v);
gpu_status convolve_blas_gpu(gpu_blas *blas, const convolution_gpu &v, float *matrix, cudaStream_t stream);
gpu_status connect_blas_gpu(gpu_blas *blas, const convolution_gpu &v, cudaStream_t stream);

enum { NARROW = 8 }; /* with fewer filters of a group, one thread for each output is the way */

/* GPU_FAILED: too large. Arrays are left to the caller. */
gpu_status describe_convolution(convolution_gpu *v, const convolution_shape &s, size_t batch, size_t groups);
/* Whether those are there that a layer with weights, and batchnorm or biases, needs; what: its name in messages */
gpu_status check_arrays(const layer *l, const gpu_arrays *a, const char *what);

/* The sums of v in the order that a asks for; matrix: convolution_scratch() floats */
size_t convolution_scratch(const convolution_gpu &v, const gpu_arrays *a);
gpu_status convolve_gpu(const convolution_gpu &v, const gpu_arrays *a, float *matrix);
/* What follows the sums, in place: batchnorm or biases, then the activation */
gpu_status finish_sums(const layer *l, const gpu_arrays *a, float *x, extent e, int host);

/* ---- layers/convolutional_layer.cu ------------------------------------------------------------------------------------------------ */

/* output (batch, outputs of blur) of its input (batch, inputs) */
cudaError_t blur_gpu(const layer *blur, size_t batch, const float *input, float *output, void *stream);

/* ---- the matrix, on the device ------------------------------------------------------------------------------------------------------ */

/* Where the kernel lies over an image for one output pixel: its first row and column, padding left out, and the image */
struct window {
    const float *image;
    int y, x;
};
/* One of the kernel's elements */
struct element {
    unsigned channel;
    int y, x;
};

__device__ inline window window_of(const convolution_gpu &v, const float *image, unsigned pixel) {
    return {image, (int)(pixel / v.out_w * v.stride_y) - (int)v.pad_y, (int)(pixel % v.out_w * v.stride_x) - (int)v.pad_x};
}

__device__ inline element element_of(const convolution_gpu &v, unsigned k) {
    if (v.size == 1) return {k, 0, 0};
    unsigned area = v.size * v.size, rest = k % area;
    return {k / area, (int)(rest / v.size * v.dilation), (int)(rest % v.size * v.dilation)};
}

/* 0 in the padding */
__device__ inline float value_under(const convolution_gpu &v, const window &at, const element &e) {
    unsigned y = (unsigned)(at.y + e.y), x = (unsigned)(at.x + e.x);
    return y < v.h && x < v.w ? at.image[(e.channel * v.h + y) * v.w + x] : 0;
}

#endif
