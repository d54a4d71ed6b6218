/* Convolution as a product of matrices: im2col on the device, a part of the pixels at a time, and cuBLAS. */
#include "blas.h"
#include "convolution.h"

namespace {

constexpr size_t THREADS = 128, WANTED_BLOCKS = 4096, MOST_ROWS = 65535;

/* matrix[image][group][k][j] for the pixels first..first + count of the images from `image` on */
struct part {
    unsigned image, images, first, count;
    float *matrix;
};

/* grid: pixels, rows of the matrix */
__global__ void matrix_kernel(convolution_gpu v, part p) {
    unsigned j = blockIdx.x * blockDim.x + threadIdx.x, rows = p.images * v.groups * v.depth;
    if (j >= p.count) return;
    window at = window_of(v, nullptr, p.first + j);
    for (unsigned row = blockIdx.y; row < rows; row += gridDim.y) {
        unsigned group = row / v.depth % v.groups, image = p.image + row / v.depth / v.groups;
        at.image = v.input + image * v.image_floats + group * v.group_floats;
        p.matrix[(size_t)row * p.count + j] = value_under(v, at, element_of(v, row % v.depth));
    }
}

cudaError_t make_matrix(const convolution_gpu &v, const part &p, cudaStream_t stream) {
    size_t across = (p.count + THREADS - 1) / THREADS, rows = (size_t)p.images * v.groups * v.depth,
           down = WANTED_BLOCKS / across + 1;
    down = down < rows ? down : rows;
    LAUNCH((matrix_kernel), dim3((unsigned)across, (unsigned)(down < MOST_ROWS ? down : MOST_ROWS)), THREADS, stream)(v, p);
    return cudaGetLastError();
}

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
unsigned pixels_at_once(const gpu_blas *blas, const convolution_gpu &v) {
    return at_most(matrix_floats(blas) / rows_of(v), v.pixels);
}

unsigned images_at_once(const gpu_blas *blas, const convolution_gpu &v) {
    bool whole = v.groups == 1 && pixels_at_once(blas, v) == v.pixels;
    return whole ? at_most(matrix_floats(blas) / (rows_of(v) * v.pixels), v.images) : 1;
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

/* All groups of an image, or several images of one group */
gpu_status multiply_part(gpu_blas *blas, const convolution_gpu &v, const part &m, cudaStream_t stream) {
    gpu_status s = gpu_check(make_matrix(v, m, stream), "the matrix of a convolution");
    if (s != GPU_OK) return s;
    product p = product_of(v, 0);
    p.columns = p.right_row = (int)m.count, p.count = (int)(m.images * v.groups);
    p.left_step = v.groups > 1 ? (size_t)v.n * v.depth : 0;
    p.right = m.matrix, p.right_step = (size_t)v.depth * m.count;
    p.out += (size_t)m.image * v.groups * v.n * v.pixels + m.first, p.out_step = (size_t)v.n * v.pixels;
    return multiply_rows(blas, p, stream);
}

} // namespace

size_t blas_floats(const gpu_blas *blas, const convolution_gpu &v) {
    return is_matrix(v) ? 0 : images_at_once(blas, v) * rows_of(v) * pixels_at_once(blas, v);
}

gpu_status convolve_blas_gpu(gpu_blas *blas, const convolution_gpu &v, float *matrix, cudaStream_t stream) {
    gpu_status s = GPU_OK;
    if (is_matrix(v)) {
        for (unsigned group = 0; s == GPU_OK && group < v.groups; ++group) s = multiply_rows(blas, product_of(v, group), stream);
        return s;
    }
    unsigned pixels = pixels_at_once(blas, v), images = images_at_once(blas, v);
    for (unsigned image = 0; image < v.images; image += images)
        for (unsigned first = 0; s == GPU_OK && first < v.pixels; first += pixels) {
            part p = {image, at_most(v.images - image, images), first, at_most(v.pixels - first, pixels), matrix};
            s = multiply_part(blas, v, p, stream);
        }
    return s;
}

gpu_status connect_blas_gpu(gpu_blas *blas, const convolution_gpu &v, cudaStream_t stream) {
    product p = product_of(v, 0);
    p.rows = (int)v.images, p.columns = (int)v.n, p.count = 1, p.right_transposed = true;
    p.left = v.input, p.right = v.weights, p.right_row = (int)v.depth, p.out_row = (int)v.n;
    return multiply_rows(blas, p, stream);
}
