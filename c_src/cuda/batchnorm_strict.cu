/* Batch normalization in the order of the forks' kernels (src/blas_kernels.cu): a block of 512 threads takes a channel, thread p its
 * part p, and thread 0 the totals. The arithmetic is device_batchnorm.h, which the CPU's cuda profiles compute with too; built with
 * -fmad=false the bits are the same. A fork's own build contracts to multiply-adds and differs in the last ones. */
#include "../kernels/device_batchnorm.h"
#include "gpu.h"
#include "statistics.cuh"

namespace {

struct planes {
    size_t batch, c, spatial;
    __device__ size_t step() const {
        return c * spatial;
    }
    __device__ size_t count() const {
        return batch * spatial;
    }
};

__device__ size_t divisor(const planes &s, denominator d) {
    return d == DENOMINATOR_N ? s.count() : s.count() - 1;
}

__global__ void moments_kernel(planes s, batchnorm_rule rule, const float *x, kept_statistics to) {
    __shared__ float parts[DEVICE_PARTS];
    __shared__ float middle;
    size_t f = blockIdx.x, p = threadIdx.x;
    const float *channel = x + f * s.spatial;
    device_sums(channel, s.batch, s.step(), s.spatial, p, p + 1, parts + p);
    __syncthreads();
    if (p == 0) middle = device_moment(device_total(0, parts, DEVICE_PARTS), s.count());
    __syncthreads();
    device_squares(channel, s.batch, s.step(), s.spatial, middle, p, p + 1, parts + p);
    __syncthreads();
    if (p) return;
    float squares = device_total(0, parts, DEVICE_PARTS);
    keep_statistics(to, f, middle, device_moment(squares, divisor(s, rule.normalize_variance)),
                    device_moment(squares, divisor(s, rule.keep_variance)));
}

/* One thread for a value */
__global__ void normalize_kernel(planes s, epsilon_rule e, const float *x, const float *mean, const float *variance,
                                 const float *scales, const float *biases, float *output) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= s.batch * s.step()) return;
    size_t f = i / s.spatial % s.c;
    output[i] = device_scaled(device_normalized(x[i], mean[f], device_root(variance[f], &e)), scales[f], biases[f]);
}

struct gradients {
    float *scale_updates, *bias_updates, *mean_delta, *variance_delta;
};

__global__ void deltas_kernel(planes s, batchnorm_rule rule, const float *x, const float *delta, const float *mean,
                              const float *variance, const float *scales, gradients to, bool constant) {
    __shared__ float parts[4][DEVICE_PARTS];
    size_t f = blockIdx.x, p = threadIdx.x;
    device_channel channel = {};
    channel.x = x + f * s.spatial, channel.delta = delta + f * s.spatial;
    channel.batch = s.batch, channel.step = s.step(), channel.spatial = s.spatial;
    channel.mean = mean[f], channel.scale = scales[f], channel.root = device_root(variance[f], &rule.forward);
    device_delta_parts own = {parts[0] + p, parts[1] + p, parts[2] + p, parts[3] + p};
    device_deltas(&channel, p, p + 1, &own);
    __syncthreads();
    if (p) return;
    if (rule.bias_gradient) to.bias_updates[f] = device_total(to.bias_updates[f], parts[0], DEVICE_PARTS);
    to.scale_updates[f] = device_total(to.scale_updates[f], parts[1], DEVICE_PARTS);
    if (constant) return;
    float root = device_root(variance[f], &rule.statistic_terms), power = device_power(variance[f], &rule.statistic_terms);
    to.mean_delta[f] = device_mean_delta(device_total(0, parts[2], DEVICE_PARTS), root);
    to.variance_delta[f] = device_variance_delta(device_total(0, parts[3], DEVICE_PARTS), power, rule.products);
}

__global__ void carry_kernel(planes s, batchnorm_rule rule, const float *x, const float *delta, const float *mean,
                             const float *variance, const float *scales, const float *mean_delta, const float *variance_delta,
                             float *input_delta, bool constant) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= s.batch * s.step()) return;
    size_t f = i / s.spatial % s.c;
    device_terms t = {};
    t.scale = scales[f], t.mean = mean[f], t.root = device_root(variance[f], &rule.direct_term);
    t.n = (float)s.count(), t.products = rule.products, t.constant = constant;
    if (!constant) t.mean_delta = mean_delta[f], t.variance_delta = variance_delta[f];
    input_delta[i] = device_delta(&t, x[i], delta[i]);
}

planes planes_of(const gpu_job &job) {
    return {job.batch, job.l->c, job.spatial};
}

unsigned blocks_for_values(const gpu_job &job) {
    size_t values = job.batch * job.l->c * job.spatial;
    return (unsigned)((values + DEVICE_PARTS - 1) / DEVICE_PARTS);
}

} // namespace

cudaError_t strict_moments(const gpu_job &job, const float *x) {
    batchnorm_gpu *l = job.l;
    LAUNCH((moments_kernel), (unsigned)l->c, DEVICE_PARTS, job.stream)(planes_of(job), l->rule, x, statistics_of(job));
    return cudaGetLastError();
}

cudaError_t strict_normalize(const gpu_job &job, const float *x, float *output) {
    const batchnorm_gpu *l = job.l;
    LAUNCH((normalize_kernel), blocks_for_values(job), DEVICE_PARTS, job.stream)(planes_of(job), l->rule.forward, x, job.mean,
                                                                                 job.variance, l->scales, l->biases, output);
    return cudaGetLastError();
}

cudaError_t strict_deltas(const gpu_job &job, const float *x, const float *delta, bool constant) {
    batchnorm_gpu *l = job.l;
    gradients to = {l->scale_updates, l->bias_updates, l->mean_delta, l->variance_delta};
    LAUNCH((deltas_kernel), (unsigned)l->c, DEVICE_PARTS, job.stream)(planes_of(job), l->rule, x, delta, job.mean, job.variance,
                                                                      l->scales, to, constant);
    return cudaGetLastError();
}

cudaError_t strict_carry(const gpu_job &job, const float *x, const float *delta, float *input_delta, bool constant) {
    const batchnorm_gpu *l = job.l;
    LAUNCH((carry_kernel), blocks_for_values(job), DEVICE_PARTS, job.stream)(planes_of(job), l->rule, x, delta, job.mean,
                                                                             job.variance, l->scales, l->mean_delta,
                                                                             l->variance_delta, input_delta, constant);
    return cudaGetLastError();
}
