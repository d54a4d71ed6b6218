/* Products of matrices by the cuBLAS that was opened. */
#ifndef DARKNETBN_CUDA_BLAS_H
#define DARKNETBN_CUDA_BLAS_H

#include "gpu.h"

/* out = left * right of `count` matrices, row after row: left (rows, depth), right (depth, columns) or, transposed, (columns, depth).
 * *_row: floats from a row to the next; *_step: from a matrix to the next, 0 the same one. */
struct product {
    int rows, columns, depth, count;
    const float *left, *right;
    float *out;
    size_t left_step, right_step, out_step;
    int right_row, out_row;
    bool right_transposed;
};

/* What gpu_open_blas was told */
size_t matrix_floats(const gpu_blas *blas);

gpu_status multiply_rows(gpu_blas *blas, const product &p, cudaStream_t stream);

#endif
