/* Element by element, what gates do (AlexeyAB/darknet src/blas.c; the first two pjreddie's, too). */
#include <math.h>

#include "kernels.h"

void mul_cpu(size_t n, const float *x, float *y) {
    for (size_t i = 0; i < n; ++i) y[i] *= x[i];
}

void weighted_sum_cpu(const float *a, const float *b, const float *s, size_t n, float *out) {
    for (size_t i = 0; i < n; ++i) out[i] = s[i] * a[i] + (1 - s[i]) * b[i];
}

void weighted_sum_gradients(const float *a, const float *b, const float *s, size_t n, const float *delta, float *a_delta,
                            float *b_delta, float *s_delta) {
    for (size_t i = 0; i < n; ++i) {
        a_delta[i] = s[i] * delta[i];
        b_delta[i] = (1 - s[i]) * delta[i];
        s_delta[i] = (a[i] - b[i]) * delta[i];
    }
}

void constrain_gradient(size_t n, float limit, const float *x, float *delta) {
    for (size_t i = 0; i < n; ++i)
        if (!(fabsf(x[i]) < limit)) delta[i] = 0;
}

void constrain_cpu(size_t n, float limit, float *x) {
    for (size_t i = 0; i < n; ++i) x[i] = fminf(limit, fmaxf(-limit, x[i])); /* of a NaN and a number both take the number */
}

void fix_nan_and_inf_cpu(float *x, size_t n) {
    for (size_t i = 0; i < n; ++i)
        if (!isfinite(x[i])) x[i] = 1.F / (float)i;
}
