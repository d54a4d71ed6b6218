/* Batch normalization over several ranks, each with a batch of its own on a device of its own: their moments and sums in double, and
 * the merging of those that a gather brought. Everything is merged in the order of the ranks, so that all have the same bits.
 *
 * In double, since a float's moments of a large mean have lost the variance that the merge needs; on devices whose double is slow the
 * passes that only read are so, too. */
#include "channels.cuh"
#include "statistics.cuh"

namespace {

/* message: n, c means, c sums of squares */
struct send_moments {
    size_t c;
    double *message;
    __device__ void operator()(size_t f, part_moments<double> m) const {
        if (f == 0) message[0] = m.n;
        message[1 + f] = m.mean, message[1 + c + f] = m.squares;
    }
};

/* message: c sums of delta, c of delta * (x - mean) */
struct send_sums {
    size_t c;
    double *message;
    __device__ void operator()(size_t f, part_sums<double> sums) const {
        message[f] = sums.delta, message[c + f] = sums.off;
    }
};

/* One thread for a channel */
__global__ void statistics_kernel(size_t c, size_t ranks, batchnorm_rule rule, const double *messages, double *total,
                                  kept_statistics to) {
    size_t f = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (f >= c) return;
    part_moments<double> all = {0, 0, 0};
    for (size_t r = 0; r < ranks; ++r) {
        const double *m = messages + r * (1 + 2 * c);
        all = together(all, {m[0], m[1 + f], m[1 + c + f]});
    }
    if (f == 0) *total = all.n;
    to.move.moves = to.move.moves && all.n > (rule.keep_variance == DENOMINATOR_N ? 0 : 1); /* else there is no variance to keep */
    keep_statistics(to, f, (float)all.mean, variance_of(all, rule.normalize_variance), variance_of(all, rule.keep_variance));
}

__global__ void terms_kernel(size_t c, size_t ranks, const double *messages, const double *parameters, const double *total,
                             fast_gradients to) {
    size_t f = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (f >= c) return;
    part_sums<double> all = {0, 0};
    for (size_t r = 0; r < ranks; ++r) {
        const double *m = messages + r * 2 * c;
        all = together(all, {m[f], m[c + f]});
    }
    part_sums<double> own = all;
    if (parameters) own = {parameters[f], parameters[c + f]};
    add_updates(to, f, own);
    find_terms(to, f, all, (float)*total);
}

unsigned blocks_of(size_t c) {
    return (unsigned)quotient_up(c, CHANNEL_THREADS);
}

} // namespace

cudaError_t rank_moments(const gpu_job &job, const void *x, double *message) {
    batchnorm_gpu *l = job.l;
    part_moments<double> *partials = static_cast<part_moments<double> *>(l->partials);
    send_moments finish = {l->c, message};
    return by_storage(job, x, x, x, [&](auto zero, auto width) {
        using T = decltype(zero);
        LAUNCH((moments_kernel<double, T, width, send_moments>), grid_of_channels(job, width), CHANNEL_THREADS,
               job.stream)(planes_of(job), (const T *)x, partials, l->arrived, finish);
    });
}

cudaError_t rank_statistics(const gpu_job &job, size_t ranks, const double *messages) {
    batchnorm_gpu *l = job.l;
    LAUNCH((statistics_kernel), blocks_of(l->c), CHANNEL_THREADS, job.stream)(l->c, ranks, l->rule, messages, l->total,
                                                                              statistics_of(job));
    return cudaGetLastError();
}

cudaError_t rank_sums(const gpu_job &job, const void *x, const void *delta, double *message) {
    batchnorm_gpu *l = job.l;
    part_sums<double> *partials = static_cast<part_sums<double> *>(l->partials);
    send_sums finish = {l->c, message};
    return by_storage(job, x, delta, delta, [&](auto zero, auto width) {
        using T = decltype(zero);
        LAUNCH((sums_kernel<double, T, width, send_sums>), grid_of_channels(job, width), CHANNEL_THREADS,
               job.stream)(planes_of(job), (const T *)x, (const T *)delta, job.mean, partials, l->arrived, finish);
    });
}

cudaError_t rank_terms(const gpu_job &job, size_t ranks, const double *messages, const double *parameters) {
    batchnorm_gpu *l = job.l;
    LAUNCH((terms_kernel), blocks_of(l->c), CHANNEL_THREADS, job.stream)(l->c, ranks, messages, parameters, l->total,
                                                                         gradients_of(job, false));
    return cudaGetLastError();
}
