/* What the files of the CUDA library share and Python does not see. */
#ifndef DARKNETBN_GPU_H
#define DARKNETBN_GPU_H

#include <cuda_runtime.h>

#include "../kernels/kernels.h"
#include "darknetbn_cuda.h"

/* LAUNCH((kernel), grid, block, stream)(arguments): what else the three angle brackets say. Other compilers than nvcc may have a
 * LAUNCH of their own, which runs the kernel on the CPU. */
#if defined(__CUDACC__)
#define LAUNCH(kernel, grid, block, stream) kernel<<<grid, block, 0, stream>>>
#endif

/* Sets this thread's message and returns GPU_FAILED. */
gpu_status gpu_fail(const char *format, ...);
/* GPU_OK, or the message "what: CUDA's sentence" */
gpu_status gpu_check(cudaError_t error, const char *what);

/* The device of the calling thread is another one as long as it lives. */
struct on_device {
    explicit on_device(int device) : entered(cudaGetDevice(&before)) {
        if (entered == cudaSuccess) entered = cudaSetDevice(device);
    }
    ~on_device() {
        if (entered == cudaSuccess) (void)cudaSetDevice(before);
    }
    on_device(const on_device &) = delete;
    on_device &operator=(const on_device &) = delete;
    int before = 0;
    cudaError_t entered;
};

/* What a training forward does with the rolling arrays: rolling * keep + value * add */
struct rolling_move {
    bool moves;
    float keep, add;
};

struct fast_terms;

struct batchnorm_gpu {
    int device;
    size_t c;
    batchnorm_rule rule;
    storage type;
    kernels how;
    size_t num_batches_tracked;
    size_t count;      /* values in a channel of the last training forward, 0 before it */
    void *block;       /* owned: what follows */
    fast_terms *terms; /* (c) */
    void *partials;    /* of the blocks of a pass, at most WANTED_BLOCKS + c of up to three doubles */
    double *total;     /* how many values the ranks of the last training forward had together */
    unsigned *arrived; /* (c), 0 between passes */
    float *scales, *biases, *rolling_mean, *rolling_variance;
    float *mean, *variance, *kept, *mean_delta, *variance_delta, *scale_updates, *bias_updates;
};

enum { WANTED_BLOCKS = 4096, CHANNEL_ARRAYS = 11 };

/* What the kernels of a pass are called with */
struct gpu_job {
    batchnorm_gpu *l;
    size_t batch, spatial;
    const float *mean, *variance; /* that normalise */
    rolling_move move;
    cudaStream_t stream;
};

cudaError_t strict_moments(const gpu_job &job, const float *x);
cudaError_t strict_normalize(const gpu_job &job, const float *x, float *output);
cudaError_t strict_deltas(const gpu_job &job, const float *x, const float *delta, bool constant);
cudaError_t strict_carry(const gpu_job &job, const float *x, const float *delta, float *input_delta, bool constant);

cudaError_t fast_moments(const gpu_job &job, const void *x);
cudaError_t fast_normalize(const gpu_job &job, const void *x, void *output);
cudaError_t fast_deltas(const gpu_job &job, const void *x, const void *delta, bool constant);
cudaError_t fast_carry(const gpu_job &job, const void *x, const void *delta, void *input_delta);

/* Of several ranks, see darknetbn_cuda.h */
cudaError_t rank_moments(const gpu_job &job, const void *x, double *message);
cudaError_t rank_statistics(const gpu_job &job, size_t ranks, const double *messages);
cudaError_t rank_sums(const gpu_job &job, const void *x, const void *delta, double *message);
cudaError_t rank_terms(const gpu_job &job, size_t ranks, const double *messages, const double *parameters);

/* ---- layers/pointwise.cu: in float32, bit-equal to the CPU's kernels ---------------------------------------------------------------- */

/* x, in place, becomes the activation of x + biases[channel]; of x where biases is NULL. host: as activate_array() has it */
cudaError_t activate_gpu(float *x, extent e, activation a, const arithmetic_rule *rule, int host, const float *biases,
                         void *stream);
/* The inference of a batchnorm, by a's rolling arrays, scales and biases, on a's stream; output may be x. */
cudaError_t normalize_gpu(const float *x, extent e, const batchnorm_rule *rule, const gpu_arrays *a, float *output);

#endif
