/* Marks on a stream, and the device's own time between two of them. */
#include "gpu.h"

gpu_status gpu_make_mark(void **mark, int device) {
    *mark = nullptr;
    on_device there(device);
    gpu_status s = gpu_check(there.entered, "choosing the device");
    cudaEvent_t made;
    if (s == GPU_OK) s = gpu_check(cudaEventCreate(&made), "a mark on a stream");
    if (s == GPU_OK) *mark = made;
    return s;
}

void gpu_free_mark(void *mark) {
    if (mark && cudaEventDestroy((cudaEvent_t)mark) != cudaSuccess) (void)cudaGetLastError();
}

gpu_status gpu_set_mark(void *mark, void *stream) {
    return gpu_check(cudaEventRecord((cudaEvent_t)mark, (cudaStream_t)stream), "a mark on a stream");
}

gpu_status gpu_time_between(void *first, void *last, float *milliseconds) {
    *milliseconds = 0;
    cudaError_t error = cudaEventSynchronize((cudaEvent_t)last);
    if (error == cudaSuccess) error = cudaEventElapsedTime(milliseconds, (cudaEvent_t)first, (cudaEvent_t)last);
    return gpu_check(error, "the time between two marks");
}
