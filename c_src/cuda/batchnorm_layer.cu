/* make_, forward_, backward_ and update_batchnorm_layer_gpu; the steps are those of pjreddie/darknet src/batchnorm_layer.c. */
#include <cstdlib>
#include <cstring>

#include "gpu.h"
#include "moments.cuh"

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

enum { THREADS = 256 };

unsigned blocks(size_t n) {
    return (unsigned)((n + THREADS - 1) / THREADS);
}

__global__ void fill_kernel(float *array, size_t n, float value) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) array[i] = value;
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
    return device_computes(rule) && rule->variance_formula == VARIANCE_FORMULA_DIFFERENCES;
}

gpu_status check_pass(const batchnorm_gpu *l, const gpu_pass *pass) {
    const size_t limit = (size_t)1 << 40;
    size_t planes = pass->batch * l->c;
    if (pass->batch > limit / l->c || (planes && pass->spatial > limit / planes))
        return gpu_fail("%zu images of %zu channels of %zu values are too many", pass->batch, l->c, pass->spatial);
    return GPU_OK;
}

gpu_status check_values(const batchnorm_gpu *l, const gpu_pass *pass) {
    if (!pass->batch || !pass->spatial) return gpu_fail("expected a batch and planes of 1 value or more, got none");
    return check_pass(l, pass);
}

/* A rank may have no value at all. */
gpu_status check_ranks(const batchnorm_gpu *l, const gpu_pass *pass) {
    if (l->how == KERNELS_STRICT)
        return gpu_fail("the strict kernels sum one batch in the order of a fork; statistics of several ranks are the fast ones'");
    return check_pass(l, pass);
}

gpu_status check_count(const batchnorm_gpu *l, const gpu_pass *pass) {
    if (l->count == pass->batch * pass->spatial) return GPU_OK;
    return gpu_fail("the last training forward was of %zu values in each channel, delta is of %zu; call the forward before it",
                    l->count, pass->batch * pass->spatial);
}

/* What the rolling arrays do in this pass, which is counted */
rolling_move next_move(batchnorm_gpu *l, const gpu_pass *pass) {
    if (pass->keep_still) return {};
    double keep = l->rule.rolling_keep, add = l->rule.rolling_add;
    l->num_batches_tracked += 1;
    if (l->rule.rolling == ROLLING_CUMULATIVE) add = 1. / (double)l->num_batches_tracked, keep = 1. - add;
    return {true, (float)keep, (float)add};
}

gpu_job job_of(batchnorm_gpu *l, const gpu_pass *pass) {
    return {l, pass->batch, pass->spatial, l->mean, l->variance, {}, (cudaStream_t)pass->stream};
}

/* The arrays of a layer begin behind each other, those with the widest values first. */
void lay_out(batchnorm_gpu *l) {
    size_t c = l->c;
    l->terms = static_cast<fast_terms *>(l->block);
    l->total = reinterpret_cast<double *>(l->terms + c);
    l->partials = l->total + 1;
    l->arrived = reinterpret_cast<unsigned *>(l->total + 1 + 3 * (WANTED_BLOCKS + c));
    float *channels = reinterpret_cast<float *>(l->arrived + c);
    for (size_t i = 0; i < CHANNEL_ARRAYS; ++i) l->*ARRAYS[i].array = channels + i * c;
}

size_t bytes_of(size_t c) {
    return c * sizeof(fast_terms) + (1 + 3 * (WANTED_BLOCKS + c)) * sizeof(double) + c * (1 + CHANNEL_ARRAYS) * sizeof(float);
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
    gpu_status s = gpu_make_array(&l->block, device, bytes_of(c));
    on_device there(device);
    if (s == GPU_OK) s = gpu_check(cudaMemset(l->block, 0, bytes_of(c)), "the arrays of a layer");
    if (s != GPU_OK) {
        free_batchnorm_layer_gpu(l);
        return s;
    }
    lay_out(l);
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
    gpu_status s = check_values(l, pass);
    size_t n = pass->batch * pass->spatial;
    bool keeps = l->rule.keep_variance == DENOMINATOR_N_MINUS_1 && !pass->keep_still;
    if (s == GPU_OK && pass->train && n == 1 && (keeps || l->rule.normalize_variance == DENOMINATOR_N_MINUS_1))
        s = gpu_fail("one value in each channel has no variance over n-1 = 0; give a larger batch");
    if (s != GPU_OK) return s;
    on_device there(l->device);
    bool strict = l->how == KERNELS_STRICT;
    gpu_job job = job_of(l, pass);
    if (pass->train) {
        job.move = next_move(l, pass);
        s = gpu_check(strict ? strict_moments(job, (const float *)x) : fast_moments(job, x), "the moments");
        l->count = s == GPU_OK ? n : 0;
    } else {
        job.mean = l->rolling_mean, job.variance = l->rolling_variance;
    }
    if (s != GPU_OK) return s;
    return gpu_check(strict ? strict_normalize(job, (const float *)x, (float *)output) : fast_normalize(job, x, output),
                     "the normalization");
}

gpu_status backward_batchnorm_layer_gpu(batchnorm_gpu *l, const gpu_pass *pass, const void *x, const void *delta,
                                        void *input_delta) {
    gpu_status s = check_values(l, pass);
    if (s != GPU_OK) return s;
    bool constant = !pass->train && l->rule.eval_statistics == STATISTICS_CONSTANT, strict = l->how == KERNELS_STRICT;
    if (!pass->train && !constant)
        return gpu_fail("a backward outside training is computed for profiles that take the rolling arrays for constants alone");
    if (pass->train && check_count(l, pass) != GPU_OK) return GPU_FAILED;
    on_device there(l->device);
    gpu_job job = job_of(l, pass);
    if (constant) job.mean = l->rolling_mean, job.variance = l->rolling_variance;
    const float *x32 = (const float *)x, *delta32 = (const float *)delta;
    s = gpu_check(strict ? strict_deltas(job, x32, delta32, constant) : fast_deltas(job, x, delta, constant), "the sums of deltas");
    if (s != GPU_OK) return s;
    return gpu_check(strict ? strict_carry(job, x32, delta32, (float *)input_delta, constant)
                            : fast_carry(job, x, delta, input_delta),
                     "the delta of the input");
}

gpu_status begin_forward_batchnorm_layer_gpu(batchnorm_gpu *l, const gpu_pass *pass, const void *x, double *message) {
    gpu_status s = check_ranks(l, pass);
    if (s != GPU_OK) return s;
    on_device there(l->device);
    l->count = pass->batch * pass->spatial;
    return gpu_check(rank_moments(job_of(l, pass), x, message), "the moments");
}

gpu_status end_forward_batchnorm_layer_gpu(batchnorm_gpu *l, const gpu_pass *pass, size_t ranks, const double *messages,
                                           const void *x, void *output) {
    gpu_status s = check_ranks(l, pass);
    if (s != GPU_OK) return s;
    on_device there(l->device);
    gpu_job job = job_of(l, pass);
    job.move = next_move(l, pass);
    s = gpu_check(rank_statistics(job, ranks, messages), "the statistics of all ranks");
    return s == GPU_OK ? gpu_check(fast_normalize(job, x, output), "the normalization") : s;
}

gpu_status begin_backward_batchnorm_layer_gpu(batchnorm_gpu *l, const gpu_pass *pass, const void *x, const void *delta,
                                              double *message) {
    gpu_status s = check_ranks(l, pass);
    if (s == GPU_OK) s = check_count(l, pass);
    if (s != GPU_OK) return s;
    on_device there(l->device);
    return gpu_check(rank_sums(job_of(l, pass), x, delta, message), "the sums of deltas");
}

gpu_status end_backward_batchnorm_layer_gpu(batchnorm_gpu *l, const gpu_pass *pass, size_t ranks, const double *messages,
                                            const double *parameters, const void *x, const void *delta, void *input_delta) {
    gpu_status s = check_ranks(l, pass);
    if (s == GPU_OK) s = check_count(l, pass);
    if (s != GPU_OK) return s;
    on_device there(l->device);
    gpu_job job = job_of(l, pass);
    s = gpu_check(rank_terms(job, ranks, messages, parameters), "the sums of deltas of all ranks");
    return s == GPU_OK ? gpu_check(fast_carry(job, x, delta, input_delta), "the delta of the input") : s;
}

gpu_status update_batchnorm_layer_gpu(batchnorm_gpu *l, size_t batch, float learning_rate, float momentum, void *stream) {
    if (!batch) return gpu_fail("expected a batch of 1 or more, got 0");
    on_device there(l->device);
    float rate = learning_rate / (float)batch;
    LAUNCH((update_kernel), blocks(l->c), THREADS, (cudaStream_t)stream)(l->c, rate, momentum, l->biases, l->bias_updates);
    LAUNCH((update_kernel), blocks(l->c), THREADS, (cudaStream_t)stream)(l->c, rate, momentum, l->scales, l->scale_updates);
    return gpu_check(cudaGetLastError(), "the update");
}
