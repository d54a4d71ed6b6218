/* The part of cuBLAS that the library calls, on the CPU: matrices column after column, sums in double. It demands what the real one
 * does of sizes, and that the mode of float was set. */
#include <stddef.h>

enum { SUCCESS, INVALID_VALUE = 7, NOT_INITIALIZED = 1, DEFAULT_MATH = 0 };

static struct {
    int users, mode;
    void *stream;
} state = {0, -1, NULL};

int cublasCreate_v2(void **handle) {
    *handle = &state, ++state.users;
    return SUCCESS;
}
int cublasDestroy_v2(void *handle) {
    --state.users;
    return handle == &state ? SUCCESS : INVALID_VALUE;
}
int cublasSetStream_v2(void *handle, void *stream) {
    state.stream = stream;
    return handle == &state ? SUCCESS : INVALID_VALUE;
}
int cublasSetMathMode(void *handle, int mode) {
    state.mode = mode;
    return handle == &state ? SUCCESS : INVALID_VALUE;
}

/* For tests: handles that were not destroyed, and the stream that was last set */
int emulated_users(void) {
    return state.users;
}
void *emulated_stream(void) {
    return state.stream;
}

static int smallest(int transposed, int rows, int columns) {
    return transposed ? columns : rows;
}

int cublasSgemmStridedBatched(void *handle, int ta, int tb, int m, int n, int k, const float *alpha, const float *a, int lda,
                              long long step_a, const float *b, int ldb, long long step_b, const float *beta, float *c, int ldc,
                              long long step_c, int count) {
    if (handle != &state || !state.users || state.mode != DEFAULT_MATH) return NOT_INITIALIZED;
    if (m < 0 || n < 0 || k < 0 || count < 0 || lda < smallest(ta, m, k) || ldb < smallest(tb, k, n) || ldc < m)
        return INVALID_VALUE;
    for (int i = 0; i < count; ++i)
        for (int column = 0; column < n; ++column)
            for (int row = 0; row < m; ++row) {
                double sum = 0;
                for (int l = 0; l < k; ++l) {
                    float left = a[i * step_a + (ta ? l + (ptrdiff_t)row * lda : row + (ptrdiff_t)l * lda)];
                    float right = b[i * step_b + (tb ? column + (ptrdiff_t)l * ldb : l + (ptrdiff_t)column * ldb)];
                    sum += (double)left * (double)right;
                }
                float *to = c + i * step_c + row + (ptrdiff_t)column * ldc;
                *to = (float)(*alpha * sum + (*beta != 0 ? *beta * (double)*to : 0));
            }
    return SUCCESS;
}
