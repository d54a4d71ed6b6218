/* Vectors and the matrix product of connected layers (pjreddie/darknet src/blas.c, src/gemm.c). */
#include "../internal.h"
#include "curves.h"
#include "kernels.h"

typedef struct {
    float *x;
    const float *of_channels;
    extent e;
} plane_job;

static void add_planes(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const plane_job *j = context;
    for (size_t p = begin; p < end; ++p) {
        float *x = j->x + p * j->e.spatial, bias = j->of_channels[p % j->e.c];
        for (size_t i = 0; i < j->e.spatial; ++i) x[i] += bias;
    }
}

void add_bias(float *x, const float *biases, extent e) {
    plane_job j = {x, biases, e};
    parallel_for(e.batch * e.c, e.spatial, add_planes, &j);
}

static void scale_planes(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const plane_job *j = context;
    for (size_t p = begin; p < end; ++p) {
        float *x = j->x + p * j->e.spatial, scale = j->of_channels[p % j->e.c];
        for (size_t i = 0; i < j->e.spatial; ++i) x[i] *= scale;
    }
}

void scale_bias(float *x, const float *scales, extent e) {
    plane_job j = {x, scales, e};
    parallel_for(e.batch * e.c, e.spatial, scale_planes, &j);
}

void axpy_cpu(size_t n, float alpha, const float *x, float *y) {
    for (size_t i = 0; i < n; ++i) y[i] += alpha * x[i];
}

void scal_cpu(size_t n, float alpha, float *x) {
    for (size_t i = 0; i < n; ++i) x[i] *= alpha;
}

typedef struct {
    const float *input, *weights;
    size_t inputs, outputs;
    float *out;
} product_job;

/* Eight outputs at a time, since a float sum waits for its addition before; each sum keeps its order. */
enum { LANES = 8 };

static void multiply_rows(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const product_job *j = context;
    size_t blocks = (j->outputs + LANES - 1) / LANES;
    for (size_t item = begin; item < end; ++item) {
        const float *x = j->input + item / blocks * j->inputs;
        float *out = j->out + item / blocks * j->outputs;
        size_t first = item % blocks * LANES;
        size_t lanes = j->outputs - first < LANES ? j->outputs - first : LANES;
        float sums[LANES] = {0};
        for (size_t k = 0; k < j->inputs; ++k)
            for (size_t o = 0; o < lanes; ++o) sums[o] += x[k] * j->weights[(first + o) * j->inputs + k];
        for (size_t o = 0; o < lanes; ++o) out[first + o] = 0 + sums[o];
    }
}

void multiply_transposed(const float *input, const float *weights, size_t batch, size_t inputs, size_t outputs, float *out) {
    product_job j = {input, weights, inputs, outputs, out};
    parallel_for(batch * ((outputs + LANES - 1) / LANES), inputs * LANES, multiply_rows, &j);
}

typedef struct {
    const float *delta, *other; /* the input, or the weights */
    size_t batch, inputs, outputs;
    float *sums;
} gradient_job;

static void add_weight_gradients(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const gradient_job *j = context;
    for (size_t o = begin; o < end; ++o)
        for (size_t b = 0; b < j->batch; ++b)
            axpy_cpu(j->inputs, j->delta[b * j->outputs + o], j->other + b * j->inputs, j->sums + o * j->inputs);
}

void connected_weight_gradients(const float *delta, const float *input, size_t batch, size_t inputs, size_t outputs,
                                float *updates) {
    gradient_job j = {delta, input, batch, inputs, outputs, updates};
    parallel_for(outputs, batch * inputs, add_weight_gradients, &j);
}

static void add_input_gradients(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const gradient_job *j = context;
    for (size_t b = begin; b < end; ++b)
        for (size_t o = 0; o < j->outputs; ++o)
            axpy_cpu(j->inputs, j->delta[b * j->outputs + o], j->other + o * j->inputs, j->sums + b * j->inputs);
}

void connected_input_gradients(const float *delta, const float *weights, size_t batch, size_t inputs, size_t outputs, float *into) {
    gradient_job j = {delta, weights, batch, inputs, outputs, into};
    parallel_for(batch, outputs * inputs, add_input_gradients, &j);
}

typedef struct {
    const float *delta;
    extent e;
    float *updates;
} bias_job;

/* Adds the sum of each of some planes, which go on side by side; each sum keeps its order. */
INLINED void add_sums(const float *planes, size_t n, size_t spatial, float *updates) {
    float sums[LANES] = {0};
    for (size_t i = 0; i < spatial; ++i)
        for (size_t lane = 0; lane < n; ++lane) sums[lane] += planes[lane * spatial + i];
    for (size_t lane = 0; lane < n; ++lane) updates[lane] += sums[lane];
}

/* Items are LANES channels. */
static void add_bias_gradients(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const bias_job *j = context;
    for (size_t c = begin * LANES; c < end * LANES && c < j->e.c; c += LANES)
        for (size_t b = 0; b < j->e.batch; ++b) {
            const float *planes = j->delta + (b * j->e.c + c) * j->e.spatial;
            if (c + LANES <= j->e.c)
                add_sums(planes, LANES, j->e.spatial, j->updates + c);
            else
                add_sums(planes, j->e.c - c, j->e.spatial, j->updates + c);
        }
}

void bias_gradients(const float *delta, extent e, float *updates) {
    bias_job j = {delta, e, updates};
    parallel_for((e.c + LANES - 1) / LANES, e.batch * e.spatial * LANES, add_bias_gradients, &j);
}

void softmax_cpu(const float *input, size_t n, float temperature, size_t stride, precision exp_precision, float *output) {
    share_powers(input, n, temperature, stride, exp_precision, chosen_elementary(), output);
}
