/* The contract between the CUDA library and Python, a library of its own that is opened where device="cuda" is asked for.
 *
 * What follows darknetbn.h: names, the rule structs, Darknet's sign of delta, one status and one message for each call. What differs:
 *   arrays     lie on the device. Those of an image are (batch, c, spatial) of the layer's storage type, all others float32.
 *   streams    `stream` is a cudaStream_t of the caller, NULL the default one. A call puts its work on it and does not wait, unless
 *              it says so; arrays have to stay until that work is done.
 *   ownership  a layer owns its parameters and statistics; x, output and delta are the caller's. */
#ifndef DARKNETBN_CUDA_H
#define DARKNETBN_CUDA_H

#include <stddef.h>

#if defined(__cplusplus)
extern "C" {
#endif

/* cdef begin */

#include "../rules.h"

typedef enum { GPU_OK, GPU_FAILED } gpu_status;

/* Of the last call of this thread that failed */
const char *gpu_message(void);

/* How many devices there are. GPU_FAILED: none that this library can use, with the driver's reason. */
gpu_status gpu_devices(int *count);
/* Its name, of at most size bytes with the 0, and bytes of its memory */
gpu_status gpu_device(int device, char *name, size_t size, size_t *memory);
/* The device of the calling thread becomes this one; `before` is set to the one that it was. */
gpu_status gpu_choose_device(int device, int *before);
/* What it is that a pointer points to: the number of the device, -1 the host's memory */
gpu_status gpu_device_of(const void *array, int *device);

gpu_status gpu_make_array(void **array, int device, size_t bytes);
void gpu_free_array(void *array);
gpu_status gpu_push_array(void *array, const void *host, size_t bytes, void *stream);
gpu_status gpu_pull_array(const void *array, void *host, size_t bytes, void *stream); /* waits for the stream */
gpu_status gpu_copy_array(void *to, const void *from, size_t bytes, void *stream);
gpu_status gpu_synchronize(void *stream); /* waits for it */

/* Marks on a stream of that device. The time between two that were set is the device's own; the last is waited for. */
gpu_status gpu_make_mark(void **mark, int device);
void gpu_free_mark(void *mark);
gpu_status gpu_set_mark(void *mark, void *stream);
gpu_status gpu_time_between(void *first, void *last, float *milliseconds);

typedef enum { STORAGE_FLOAT32, STORAGE_FLOAT16, STORAGE_BFLOAT16 } storage;
/* Strict: the order of the forks' kernels, bit-equal to the same rule on the CPU; float32, and a rule of strided sums.
 * Fast: any rule, any storage, statistics in float32 merged as moments; equal within rounding. */
typedef enum { KERNELS_STRICT, KERNELS_FAST } kernels;

typedef struct batchnorm_gpu batchnorm_gpu;

typedef struct {
    size_t batch, spatial;
    int train; /* forward: batch statistics, rolling arrays move; backward: those of the last training forward, else as the rule says */
    int keep_still; /* rolling arrays stay in a training forward */
    void *stream;
} gpu_pass;

/* Parameters start as on the CPU: scales 1, all else 0. */
gpu_status make_batchnorm_layer_gpu(batchnorm_gpu **l, int device, size_t c, const batchnorm_rule *rule, storage type, kernels k);
void free_batchnorm_layer_gpu(batchnorm_gpu *l);
/* Four arrays of c on the host each; NULL is left out. pull waits. */
gpu_status push_batchnorm_layer_gpu(batchnorm_gpu *l, const float *scales, const float *biases, const float *rolling_mean,
                                    const float *rolling_variance, void *stream);
gpu_status pull_batchnorm_layer_gpu(batchnorm_gpu *l, float *scales, float *biases, float *rolling_mean, float *rolling_variance,
                                    void *stream);
/* An array of c by Darknet's name, such as "mean" or "scale_updates"; NULL: there is none of that name */
float *array_of_batchnorm_gpu(batchnorm_gpu *l, const char *name);
/* output may be x, where no backward follows */
gpu_status forward_batchnorm_layer_gpu(batchnorm_gpu *l, const gpu_pass *pass, const void *x, void *output);
/* x: of the last forward. Adds to scale_updates and bias_updates; input_delta may be delta. */
gpu_status backward_batchnorm_layer_gpu(batchnorm_gpu *l, const gpu_pass *pass, const void *x, const void *delta,
                                        void *input_delta);

/* A training forward, and its backward, by the statistics of several ranks, each with a batch of its own, which may be empty. Between
 * begin and end the caller gathers what begin wrote: `messages` are those of all ranks behind each other, and every rank ends with the
 * same bits in its statistics. Arrays on the device, in double:
 *   forward    1 + 2c: n, the means, the sums of squared distances from them
 *   backward   2c: sums of delta, of delta * (x - mean)
 * parameters: the rank's own message, whose sums scale_updates and bias_updates take up; NULL: those of all ranks. Fast kernels. Of
 * fewer values in all than a variance needs, it is no number, and the rolling arrays stay. */
gpu_status begin_forward_batchnorm_layer_gpu(batchnorm_gpu *l, const gpu_pass *pass, const void *x, double *message);
gpu_status end_forward_batchnorm_layer_gpu(batchnorm_gpu *l, const gpu_pass *pass, size_t ranks, const double *messages,
                                           const void *x, void *output);
gpu_status begin_backward_batchnorm_layer_gpu(batchnorm_gpu *l, const gpu_pass *pass, const void *x, const void *delta,
                                              double *message);
gpu_status end_backward_batchnorm_layer_gpu(batchnorm_gpu *l, const gpu_pass *pass, size_t ranks, const double *messages,
                                            const double *parameters, const void *x, const void *delta, void *input_delta);

gpu_status update_batchnorm_layer_gpu(batchnorm_gpu *l, size_t batch, float learning_rate, float momentum, void *stream);

/* What the inference of a layer reads and writes on the device, float32. Sizes, rule and options are those of the layer on the host,
 * which the library reads and never changes. */
typedef struct layer layer;
typedef struct gpu_blas gpu_blas; /* cuBLAS, opened */
typedef struct {
    size_t batch;
    const float *input;          /* (batch, inputs) */
    const float *const *sources; /* an array on the host of arrays on the device */
    float *output;               /* (batch, outputs) */
    const float *weights, *biases, *scales, *rolling_mean, *rolling_variance, *anchors; /* those that the layer has */
    float *scratch;                                                                     /* what scratch_of_..._gpu() asks for */
    void *stream;
    gpu_blas
        *blas; /* the products of matrices are its, equal within rounding; NULL: every sum in the order of the CPU, bit-equal */
    int plain; /* one thread for each output, as the faster kernels, which have the same bits, are specified */
} gpu_arrays;

/* cuBLAS from that file, for one device; it is opened while the process runs, never linked. A convolution's matrix is made in parts of
 * so many floats, or of one column where that has more. */
gpu_status gpu_open_blas(gpu_blas **blas, int device, const char *path, size_t matrix);
void gpu_close_blas(gpu_blas *blas);

/* Layers forward. scratch: how many floats a->scratch has to have for such a call, whose batch and blas are set; its arrays are not
 * looked at. */
gpu_status scratch_of_convolutional_layer_gpu(const layer *l, const gpu_arrays *a, size_t *floats);
gpu_status forward_convolutional_layer_gpu(const layer *l, const gpu_arrays *a);
gpu_status forward_connected_layer_gpu(const layer *l, const gpu_arrays *a);
gpu_status forward_local_layer_gpu(const layer *l, const gpu_arrays *a);
gpu_status forward_deconvolutional_layer_gpu(const layer *l, const gpu_arrays *a);

/* The inference of a layer of that type. Every sum goes in the order of the CPU, and functions are the package's own: the output
 * equals the CPU's bit for bit, but for which NaN a NaN is; denormals are never flushed. The output overlaps no array that is read.
 * maxpool: [local_avgpool] too; reorg: [reorg3d] too; standalone_batchnorm: [batchnorm]. */
gpu_status forward_activation_layer_gpu(const layer *l, const gpu_arrays *a);
gpu_status forward_avgpool_layer_gpu(const layer *l, const gpu_arrays *a);
gpu_status forward_crop_layer_gpu(const layer *l, const gpu_arrays *a);
gpu_status forward_detection_layer_gpu(const layer *l, const gpu_arrays *a);
gpu_status forward_gaussian_yolo_layer_gpu(const layer *l, const gpu_arrays *a);
gpu_status forward_implicit_layer_gpu(const layer *l, const gpu_arrays *a);
gpu_status forward_l2norm_layer_gpu(const layer *l, const gpu_arrays *a);
gpu_status forward_logistic_layer_gpu(const layer *l, const gpu_arrays *a);
gpu_status scratch_of_maxpool_layer_gpu(const layer *l, const gpu_arrays *a, size_t *floats);
gpu_status forward_maxpool_layer_gpu(const layer *l, const gpu_arrays *a);
gpu_status forward_region_layer_gpu(const layer *l, const gpu_arrays *a);
gpu_status forward_reorg_layer_gpu(const layer *l, const gpu_arrays *a);
gpu_status forward_route_layer_gpu(const layer *l, const gpu_arrays *a);
gpu_status forward_sam_layer_gpu(const layer *l, const gpu_arrays *a);
gpu_status forward_scale_channels_layer_gpu(const layer *l, const gpu_arrays *a);
gpu_status forward_shortcut_layer_gpu(const layer *l, const gpu_arrays *a);
gpu_status forward_softmax_layer_gpu(const layer *l, const gpu_arrays *a);
gpu_status forward_standalone_batchnorm_layer_gpu(const layer *l, const gpu_arrays *a);
gpu_status forward_upsample_layer_gpu(const layer *l, const gpu_arrays *a);
gpu_status forward_yolo_layer_gpu(const layer *l, const gpu_arrays *a);

/* cdef end */

#if defined(__cplusplus)
}
#endif

#endif
