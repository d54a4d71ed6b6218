/* Convolution as a product of matrices: im2col on the device, a part of the pixels at a time, and cuBLAS. */
#include "blas.h"
#include "convolution.h"
#include "each.cuh"

namespace {

constexpr size_t MATRIX_FLOATS =
    1 << 24; /* that a matrix has at most, unless one column of it has more: 64 MiB, about a cache's size */

/* matrix[image][group][k][j] for the pixels first..first + count of the images from `image` on */
struct column_value {
    convolution_gpu v;
    unsigned image, first, count;
    float *matrix;
    __device__ void operator()(size_t i) const {
        size_t row = i / count, group = row / v.depth % v.groups, own = image + row / v.depth / v.groups;
        const float *from = v.input + own * v.image_floats + group * v.group_floats;
        window at = window_of(v, from, first + (unsigned)(i % count));
        matrix[i] = value_under(v, at, element_of(v, (unsigned)(row % v.depth)));
    }
};

/* A convolution of one pixel reads the image as it is. */
bool is_matrix(const convolution_gpu &v) {
    return v.size == 1 && v.stride_x == 1 && v.stride_y == 1 && !v.pad_x && !v.pad_y;
}

size_t rows_of(const convolution_gpu &v) {
    return (size_t)v.groups * v.depth;
}

unsigned at_most(size_t n, unsigned most) {
    return n < 1 ? 1 : n < most ? (unsigned)n : most;
}

/* Pixels of an image, and whole images of one group, that a matrix is made of at a time */
unsigned pixels_at_once(const convolution_gpu &v) {
    return at_most(MATRIX_FLOATS / rows_of(v), v.pixels);
}

unsigned images_at_once(const convolution_gpu &v) {
    return v.groups == 1 && pixels_at_once(v) == v.pixels ? at_most(MATRIX_FLOATS / (rows_of(v) * v.pixels), v.images) : 1;
}

/* Of one group, whose image of v.pixels columns is read as it is */
product product_of(const convolution_gpu &v, unsigned group) {
    product p = {};
    p.rows = (int)v.n, p.columns = (int)v.pixels, p.depth = (int)v.depth, p.count = (int)v.images;
    p.left = v.weights + (size_t)group * v.n * v.depth;
    p.right = v.input + group * v.group_floats, p.right_step = v.image_floats, p.right_row = (int)v.pixels;
    p.out = v.output + (size_t)group * v.n * v.pixels, p.out_step = (size_t)v.groups * v.n * v.pixels, p.out_row = (int)v.pixels;
    return p;
}

/* All groups of the images from `image` on, or several images of one group */
gpu_status multiply_columns(gpu_blas *blas, const convolution_gpu &v, const column_value &c, unsigned images, cudaStream_t stream) {
    gpu_status s = gpu_check(each(images * rows_of(v) * c.count, c, stream), "the matrix of a convolution");
    if (s != GPU_OK) return s;
    product p = product_of(v, 0);
    p.columns = p.right_row = (int)c.count, p.count = (int)(images * v.groups);
    p.left_step = v.groups > 1 ? (size_t)v.n * v.depth : 0;
    p.right = c.matrix, p.right_step = (size_t)v.depth * c.count;
    p.out += (size_t)c.image * v.groups * v.n * v.pixels + c.first, p.out_step = (size_t)v.n * v.pixels;
    return multiply_rows(blas, p, stream);
}

} // namespace

size_t blas_floats(const convolution_gpu &v) {
    return is_matrix(v) ? 0 : images_at_once(v) * rows_of(v) * pixels_at_once(v);
}

gpu_status convolve_blas_gpu(gpu_blas *blas, const convolution_gpu &v, float *matrix, cudaStream_t stream) {
    gpu_status s = GPU_OK;
    if (is_matrix(v)) {
        for (unsigned group = 0; s == GPU_OK && group < v.groups; ++group) s = multiply_rows(blas, product_of(v, group), stream);
        return s;
    }
    unsigned pixels = pixels_at_once(v), images = images_at_once(v);
    for (unsigned image = 0; image < v.images; image += images)
        for (unsigned first = 0; s == GPU_OK && first < v.pixels; first += pixels) {
            column_value c = {v, image, first, at_most(v.pixels - first, pixels), matrix};
            s = multiply_columns(blas, v, c, at_most(v.images - image, images), stream);
        }
    return s;
}

gpu_status connect_blas_gpu(gpu_blas *blas, const convolution_gpu &v, cudaStream_t stream) {
    product p = product_of(v, 0);
    p.rows = (int)v.images, p.columns = (int)v.n, p.count = 1, p.right_transposed = true;
    p.left = v.input, p.right = v.weights, p.right_row = (int)v.depth, p.out_row = (int)v.n;
    return multiply_rows(blas, p, stream);
}
