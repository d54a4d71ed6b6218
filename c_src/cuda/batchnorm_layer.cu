/* make_, forward_, backward_ and update_batchnorm_layer_gpu; the steps are those of pjreddie/darknet src/batchnorm_layer.c. */
#include <cstdlib>
#include <cstring>

#include "gpu.h"

namespace {

struct named_array {
    const char *name;
    float *batchnorm_gpu::*array;
};

const named_array ARRAYS[CHANNEL_ARRAYS] = {{"scales", &batchnorm_gpu::scales},
                                            {"biases", &batchnorm_gpu::biases},
                                            {"rolling_mean", &batchnorm_gpu::rolling_mean},
                                            {"rolling_variance", &batchnorm_gpu::rolling_variance},
                                            {"mean", &batchnorm_gpu::mean},
                                            {"variance", &batchnorm_gpu::variance},
                                            {"kept", &batchnorm_gpu::kept},
                                            {"mean_delta", &batchnorm_gpu::mean_delta},
                                            {"variance_delta", &batchnorm_gpu::variance_delta},
                                            {"scale_updates", &batchnorm_gpu::scale_updates},
                                            {"bias_updates", &batchnorm_gpu::bias_updates}};

enum { PARTIAL_FLOATS = SPLITS * 3, THREADS = 256 };

unsigned blocks(size_t n) {
    return (unsigned)((n + THREADS - 1) / THREADS);
}

__global__ void fill_kernel(float *array, size_t n, float value) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) array[i] = value;
}

/* rolling = rolling * keep, then + add * value: two roundings and one for the product */
__global__ void move_rolling_kernel(size_t n, float keep, float add, const float *mean, const float *kept, float *rolling_mean,
                                    float *rolling_variance) {
    size_t f = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (f >= n) return;
    rolling_mean[f] = rolling_mean[f] * keep + add * mean[f];
    rolling_variance[f] = rolling_variance[f] * keep + add * kept[f];
}

/* parameter += rate * updates; updates *= momentum */
__global__ void update_kernel(size_t n, float rate, float momentum, float *parameters, float *updates) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    parameters[i] += rate * updates[i];
    updates[i] *= momentum;
}

/* Whether the strict kernels compute by the rule */
bool is_strict_rule(const batchnorm_rule *rule) {
    return rule->summation == SUMMATION_STRIDED && rule->moments == MOMENTS_QUOTIENT && rule->squares == PRECISION_FLOAT &&
           rule->intermediate == PRECISION_FLOAT && rule->inverse_cube == INVERSE_CUBE_ROOT && rule->quotients == PRECISION_FLOAT &&
           rule->variance_formula == VARIANCE_FORMULA_DIFFERENCES;
}

gpu_status check_pass(const batchnorm_gpu *l, const gpu_pass *pass) {
    const size_t limit = (size_t)1 << 40;
    size_t planes = pass->batch * l->c;
    if (!pass->batch || !pass->spatial) return gpu_fail("expected a batch and planes of 1 value or more, got none");
    if (pass->batch > limit / l->c || pass->spatial > limit / planes)
        return gpu_fail("%zu images of %zu channels of %zu values are too many", pass->batch, l->c, pass->spatial);
    return GPU_OK;
}

gpu_status move_rolling(batchnorm_gpu *l, cudaStream_t stream) {
    double keep = l->rule.rolling_keep, add = l->rule.rolling_add;
    l->num_batches_tracked += 1;
    if (l->rule.rolling == ROLLING_CUMULATIVE) add = 1. / (double)l->num_batches_tracked, keep = 1. - add;
    LAUNCH((move_rolling_kernel), blocks(l->c), THREADS, stream)(l->c, (float)keep, (float)add, l->mean, l->kept, l->rolling_mean,
                                                                 l->rolling_variance);
    return gpu_check(cudaGetLastError(), "the rolling arrays");
}

} // namespace

gpu_status make_batchnorm_layer_gpu(batchnorm_gpu **made, int device, size_t c, const batchnorm_rule *rule, storage type,
                                    kernels k) {
    *made = nullptr;
    if (c == 0 || c > 65535) return gpu_fail("expected 1 to 65,535 channels, got %zu", c);
    if (k == KERNELS_STRICT && (!is_strict_rule(rule) || type != STORAGE_FLOAT32))
        return gpu_fail(
            "the strict kernels compute in float32 by a rule of strided sums; take the fast ones, or a profile of a fork's GPU");
    batchnorm_gpu *l = static_cast<batchnorm_gpu *>(calloc(1, sizeof *l));
    if (!l) return gpu_fail("no memory for a layer");
    l->device = device, l->c = c, l->rule = *rule, l->type = type, l->how = k;
    size_t floats = c * (CHANNEL_ARRAYS + PARTIAL_FLOATS);
    gpu_status s = gpu_make_array(reinterpret_cast<void **>(&l->block), device, floats * sizeof(float));
    on_device there(device);
    if (s == GPU_OK) s = gpu_check(cudaMemset(l->block, 0, floats * sizeof(float)), "the arrays of a layer");
    if (s != GPU_OK) {
        free_batchnorm_layer_gpu(l);
        return s;
    }
    l->partials = l->block;
    for (size_t i = 0; i < CHANNEL_ARRAYS; ++i) l->*ARRAYS[i].array = l->block + (PARTIAL_FLOATS + i) * c;
    LAUNCH((fill_kernel), blocks(c), THREADS, nullptr)(l->scales, c, 1);
    *made = l;
    s = gpu_check(cudaDeviceSynchronize(), "the start of a layer");
    if (s != GPU_OK) {
        free_batchnorm_layer_gpu(l);
        *made = nullptr;
    }
    return s;
}

void free_batchnorm_layer_gpu(batchnorm_gpu *l) {
    if (!l) return;
    gpu_free_array(l->block);
    free(l);
}

gpu_status push_batchnorm_layer_gpu(batchnorm_gpu *l, const float *scales, const float *biases, const float *rolling_mean,
                                    const float *rolling_variance, void *stream) {
    const float *from[] = {scales, biases, rolling_mean, rolling_variance};
    on_device there(l->device);
    for (size_t i = 0; i < 4; ++i)
        if (from[i] && gpu_push_array(l->*ARRAYS[i].array, from[i], l->c * sizeof(float), stream) != GPU_OK) return GPU_FAILED;
    return GPU_OK;
}

gpu_status pull_batchnorm_layer_gpu(batchnorm_gpu *l, float *scales, float *biases, float *rolling_mean, float *rolling_variance,
                                    void *stream) {
    float *to[] = {scales, biases, rolling_mean, rolling_variance};
    on_device there(l->device);
    for (size_t i = 0; i < 4; ++i)
        if (to[i] && gpu_pull_array(l->*ARRAYS[i].array, to[i], l->c * sizeof(float), stream) != GPU_OK) return GPU_FAILED;
    return GPU_OK;
}

float *array_of_batchnorm_gpu(batchnorm_gpu *l, const char *name) {
    for (const named_array &each : ARRAYS)
        if (strcmp(each.name, name) == 0) return l->*each.array;
    return nullptr;
}

gpu_status forward_batchnorm_layer_gpu(batchnorm_gpu *l, const gpu_pass *pass, const void *x, void *output) {
    gpu_status s = check_pass(l, pass);
    size_t n = pass->batch * pass->spatial;
    if (s == GPU_OK && pass->train && n == 1 && l->rule.normalize_variance == DENOMINATOR_N_MINUS_1)
        s = gpu_fail("one value in each channel has no variance over n-1 = 0; give a larger batch");
    if (s != GPU_OK) return s;
    on_device there(l->device);
    bool strict = l->how == KERNELS_STRICT;
    gpu_job job = {l, pass->batch, pass->spatial, l->rolling_mean, l->rolling_variance, (cudaStream_t)pass->stream};
    if (pass->train) {
        job.mean = l->mean, job.variance = l->variance;
        s = gpu_check(strict ? strict_moments(job, (const float *)x) : fast_moments(job, x), "the moments");
        if (s == GPU_OK && !pass->keep_still) s = move_rolling(l, job.stream);
        l->count = s == GPU_OK ? n : 0;
    }
    if (s != GPU_OK) return s;
    return gpu_check(strict ? strict_normalize(job, (const float *)x, (float *)output) : fast_normalize(job, x, output),
                     "the normalization");
}

gpu_status backward_batchnorm_layer_gpu(batchnorm_gpu *l, const gpu_pass *pass, const void *x, const void *delta,
                                        void *input_delta) {
    gpu_status s = check_pass(l, pass);
    if (s != GPU_OK) return s;
    bool constant = !pass->train && l->rule.eval_statistics == STATISTICS_CONSTANT, strict = l->how == KERNELS_STRICT;
    if (!pass->train && !constant)
        return gpu_fail("a backward outside training is computed for profiles that take the rolling arrays for constants alone");
    if (pass->train && l->count != pass->batch * pass->spatial)
        return gpu_fail("the last training forward was of %zu values in each channel, delta is of %zu; call the forward before it",
                        l->count, pass->batch * pass->spatial);
    on_device there(l->device);
    gpu_job job = {l, pass->batch, pass->spatial, l->mean, l->variance, (cudaStream_t)pass->stream};
    if (constant) job.mean = l->rolling_mean, job.variance = l->rolling_variance;
    const float *x32 = (const float *)x, *delta32 = (const float *)delta;
    s = gpu_check(strict ? strict_deltas(job, x32, delta32, constant) : fast_deltas(job, x, delta, constant), "the sums of deltas");
    if (s != GPU_OK) return s;
    return gpu_check(strict ? strict_carry(job, x32, delta32, (float *)input_delta, constant)
                            : fast_carry(job, x, delta, input_delta, constant),
                     "the delta of the input");
}

gpu_status update_batchnorm_layer_gpu(batchnorm_gpu *l, size_t batch, float learning_rate, float momentum, void *stream) {
    if (!batch) return gpu_fail("expected a batch of 1 or more, got 0");
    on_device there(l->device);
    float rate = learning_rate / (float)batch;
    LAUNCH((update_kernel), blocks(l->c), THREADS, (cudaStream_t)stream)(l->c, rate, momentum, l->biases, l->bias_updates);
    LAUNCH((update_kernel), blocks(l->c), THREADS, (cudaStream_t)stream)(l->c, rate, momentum, l->scales, l->scale_updates);
    return gpu_check(cudaGetLastError(), "the update");
}
