/* Devices, arrays and messages. */
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "gpu.h"

static thread_local char message[512];

const char *gpu_message(void) {
    return message;
}

gpu_status gpu_fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return GPU_FAILED;
}

gpu_status gpu_check(cudaError_t error, const char *what) {
    if (error == cudaSuccess) return GPU_OK;
    (void)cudaGetLastError(); /* what is told here is not told again of a later call */
    return gpu_fail("%s: %s", what, cudaGetErrorString(error));
}

gpu_status gpu_devices(int *count) {
    *count = 0;
    cudaError_t error = cudaGetDeviceCount(count);
    if (error == cudaSuccess) return GPU_OK;
    (void)cudaGetLastError();
    return gpu_fail("no CUDA device can be used (%s); install NVIDIA's driver for it, or compute on the CPU",
                    cudaGetErrorString(error));
}

gpu_status gpu_device(int device, char *name, size_t size, size_t *memory) {
    cudaDeviceProp properties;
    gpu_status s = gpu_check(cudaGetDeviceProperties(&properties, device), "the properties of a device");
    if (s != GPU_OK) return s;
    snprintf(name, size, "%s", properties.name);
    *memory = properties.totalGlobalMem;
    return GPU_OK;
}

gpu_status gpu_choose_device(int device, int *before) {
    gpu_status s = gpu_check(cudaGetDevice(before), "the device of the thread");
    return s == GPU_OK ? gpu_check(cudaSetDevice(device), "choosing the device") : s;
}

gpu_status gpu_device_of(const void *array, int *device) {
    cudaPointerAttributes attributes;
    gpu_status s = gpu_check(cudaPointerGetAttributes(&attributes, array), "the place of an array");
    bool there = s == GPU_OK && (attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged);
    *device = there ? attributes.device : -1;
    return s;
}

gpu_status gpu_make_array(void **array, int device, size_t bytes) {
    *array = nullptr;
    on_device there(device);
    gpu_status s = gpu_check(there.entered, "choosing the device");
    if (s != GPU_OK || !bytes) return s;
    cudaError_t error = cudaMalloc(array, bytes);
    if (error != cudaErrorMemoryAllocation) return gpu_check(error, "an array on the device");
    (void)cudaGetLastError();
    return gpu_fail("no memory for an array of %zu bytes on device %d; give a smaller batch", bytes, device);
}

void gpu_free_array(void *array) {
    if (array && cudaFree(array) != cudaSuccess) (void)cudaGetLastError(); /* at the end of the process the driver may be gone */
}

/* The device whose default stream a copy of an array belongs on; with a stream of its own any will do. */
static int device_for(const void *array, void *stream) {
    int device = -1;
    if (!stream && gpu_device_of(array, &device) == GPU_OK && device >= 0) return device;
    (void)cudaGetDevice(&device);
    return device;
}

gpu_status gpu_push_array(void *array, const void *host, size_t bytes, void *stream) {
    on_device there(device_for(array, stream));
    return gpu_check(cudaMemcpyAsync(array, host, bytes, cudaMemcpyHostToDevice, (cudaStream_t)stream), "an array to the device");
}

gpu_status gpu_pull_array(const void *array, void *host, size_t bytes, void *stream) {
    on_device there(device_for(array, stream));
    cudaError_t error = cudaMemcpyAsync(host, array, bytes, cudaMemcpyDeviceToHost, (cudaStream_t)stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize((cudaStream_t)stream);
    return gpu_check(error, "an array from the device");
}

gpu_status gpu_copy_array(void *to, const void *from, size_t bytes, void *stream) {
    on_device there(device_for(to, stream));
    return gpu_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, (cudaStream_t)stream), "a copy on the device");
}

gpu_status gpu_synchronize(void *stream) {
    return gpu_check(cudaStreamSynchronize((cudaStream_t)stream), "the work on the stream");
}
