/* cuBLAS, found at run time: the few functions that products of float matrices need, by its ABI of the versions 11 to 13. */
#include <dlfcn.h>
#include <new>

#include "blas.h"

namespace {

enum { CUBLAS_SUCCESS = 0, CUBLAS_PLAIN = 0, CUBLAS_TRANSPOSED = 1, CUBLAS_DEFAULT_MATH = 0 /* float, no shorter type inside */ };

typedef int (*make_handle)(void **handle);
typedef int (*free_handle)(void *handle);
typedef int (*set_stream)(void *handle, cudaStream_t stream);
typedef int (*set_math)(void *handle, int mode);
typedef int (*multiply)(void *handle, int transpose_a, int transpose_b, int m, int n, int k, const float *alpha, const float *a,
                        int lda, long long step_a, const float *b, int ldb, long long step_b, const float *beta, float *c, int ldc,
                        long long step_c, int count);

} // namespace

struct gpu_blas {
    int device;
    size_t matrix;
    void *library, *handle;
    free_handle destroy;
    set_stream on;
    multiply gemm;
};

namespace {

template <typename F> bool find(void *library, const char *name, F *function) {
    *function = reinterpret_cast<F>(dlsym(library, name));
    return *function != nullptr;
}

gpu_status begin(gpu_blas *b, const char *path) {
    make_handle create;
    set_math mode;
    void *from = b->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!from) return gpu_fail("%s", dlerror());
    bool found = find(from, "cublasCreate_v2", &create) && find(from, "cublasDestroy_v2", &b->destroy) &&
                 find(from, "cublasSetStream_v2", &b->on) && find(from, "cublasSetMathMode", &mode) &&
                 find(from, "cublasSgemmStridedBatched", &b->gemm);
    if (!found) return gpu_fail("%s is no cuBLAS of a version from 11 on", path);
    on_device there(b->device);
    if (there.entered != cudaSuccess) return gpu_check(there.entered, "choosing the device");
    int error = create(&b->handle);
    if (error != CUBLAS_SUCCESS) {
        b->handle = nullptr;
        return gpu_fail("%s does not begin on device %d: its error %d", path, b->device, error);
    }
    error = mode(b->handle, CUBLAS_DEFAULT_MATH);
    return error == CUBLAS_SUCCESS ? GPU_OK : gpu_fail("%s does not compute in float: its error %d", path, error);
}

} // namespace

gpu_status gpu_open_blas(gpu_blas **blas, int device, const char *path, size_t matrix) {
    *blas = nullptr;
    gpu_blas *made = new (std::nothrow) gpu_blas();
    if (!made) return gpu_fail("no memory on the host");
    made->device = device, made->matrix = matrix;
    gpu_status s = begin(made, path);
    if (s == GPU_OK)
        *blas = made;
    else
        gpu_close_blas(made);
    return s;
}

/* The library stays in the process: it leaves threads and handlers behind, which must not lose their code. */
void gpu_close_blas(gpu_blas *blas) {
    if (!blas) return;
    if (blas->handle) {
        on_device there(blas->device);
        (void)blas->destroy(blas->handle);
    }
    delete blas;
}

size_t matrix_floats(const gpu_blas *blas) {
    return blas->matrix;
}

gpu_status multiply_rows(gpu_blas *blas, const product &p, cudaStream_t stream) {
    const float one = 1, zero = 0;
    on_device there(blas->device);
    gpu_status s = gpu_check(there.entered, "choosing the device");
    if (s != GPU_OK) return s;
    int error = blas->on(blas->handle, stream);
    /* cuBLAS counts down columns: the rows of a matrix are the columns of its transpose, and out^T = right^T * left^T. */
    if (error == CUBLAS_SUCCESS)
        error = blas->gemm(blas->handle, p.right_transposed ? CUBLAS_TRANSPOSED : CUBLAS_PLAIN, CUBLAS_PLAIN, p.columns, p.rows,
                           p.depth, &one, p.right, p.right_row, (long long)p.right_step, p.left, p.depth, (long long)p.left_step,
                           &zero, p.out, p.out_row, (long long)p.out_step, p.count);
    return error == CUBLAS_SUCCESS ? GPU_OK
                                   : gpu_fail("a product of %d x %d x %d: cuBLAS's error %d", p.rows, p.depth, p.columns, error);
}
