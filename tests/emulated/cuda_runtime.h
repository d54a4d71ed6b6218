/* The part of CUDA's runtime that the library uses, on the CPU: kernels run one block after another, each thread of a block as a fiber
 * that gives way at __syncthreads() and shuffles. So the kernels themselves are tested where there is no GPU. */
#ifndef EMULATED_CUDA_RUNTIME_H
#define EMULATED_CUDA_RUNTIME_H

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <map>
#include <sys/mman.h>
#include <type_traits>
#include <ucontext.h>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(threads)
#define __shared__ static /* one block runs at a time */

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {
    }
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

namespace emulated {

struct block {
    dim3 grid, size, index;
    std::vector<ucontext_t> fibers;
    std::vector<std::vector<char>> stacks;
    std::vector<bool> ended;
    std::vector<double> lanes; /* holds a float exactly */
    ucontext_t scheduler;
    unsigned thread = 0;
    std::function<void()> body;
};

inline block &now() {
    static block b;
    return b;
}

inline dim3 of_thread(unsigned thread, dim3 size) {
    return {thread % size.x, thread / size.x % size.y, thread / size.x / size.y};
}

/* What cudaMalloc gave, and the pages that it lies in */
inline std::map<const void *, std::pair<void *, size_t>> &arrays() {
    static std::map<const void *, std::pair<void *, size_t>> all;
    return all;
}

inline void start() {
    now().body();
    now().ended[now().thread] = true;
}

/* Until every thread of the block that has not ended has come here */
inline void wait() {
    block &b = now();
    swapcontext(&b.fibers[b.thread], &b.scheduler);
}

inline void run_block(unsigned threads) {
    enum { STACK = 1 << 16 };
    block &b = now();
    b.fibers.assign(threads, ucontext_t()), b.ended.assign(threads, false), b.lanes.assign(threads, 0);
    b.stacks.resize(threads);
    for (unsigned t = 0; t < threads; ++t) {
        b.stacks[t].resize(STACK);
        getcontext(&b.fibers[t]);
        b.fibers[t].uc_stack.ss_sp = b.stacks[t].data(), b.fibers[t].uc_stack.ss_size = STACK;
        b.fibers[t].uc_link = &b.scheduler;
        makecontext(&b.fibers[t], start, 0);
    }
    for (unsigned left = threads; left;) {
        for (unsigned t = 0; t < threads; ++t) {
            if (b.ended[t]) continue;
            b.thread = t;
            swapcontext(&b.scheduler, &b.fibers[t]);
            left -= b.ended[t];
        }
    }
}

template <typename... P> struct launcher {
    void (*kernel)(P...);
    dim3 grid, size;
    template <typename... A> void operator()(A... arguments) {
        block &b = now();
        b.grid = grid, b.size = size;
        b.body = [&] { kernel(arguments...); };
        for (unsigned y = 0; y < grid.y; ++y)
            for (unsigned x = 0; x < grid.x; ++x) {
                b.index = {x, y, 0};
                run_block(size.x * size.y * size.z);
            }
    }
};

template <typename... P> launcher<P...> launch(void (*kernel)(P...), dim3 grid, dim3 size) {
    return {kernel, grid, size};
}

} // namespace emulated

#define LAUNCH(kernel, grid, block, stream) ((void)(stream), emulated::launch(kernel, grid, block))
#define gridDim emulated::now().grid
#define blockDim emulated::now().size
#define blockIdx emulated::now().index
#define threadIdx emulated::of_thread(emulated::now().thread, emulated::now().size)

inline void __syncthreads() {
    emulated::wait();
}

/* The value of that lane of the same warp */
template <typename T> T __shfl_sync(unsigned, T value, int lane) {
    auto &b = emulated::now();
    unsigned own = b.thread;
    b.lanes[own] = value;
    emulated::wait();
    T got = (T)b.lanes[own / 32 * 32 + lane % 32];
    emulated::wait();
    return got;
}

template <typename T> T __shfl_down_sync(unsigned all, T value, int offset) {
    int lane = emulated::now().thread % 32 + offset;
    return __shfl_sync(all, value, lane < 32 ? lane : lane - offset);
}

template <typename T> void __stcg(T *to, T value) {
    *to = value;
}

inline void __threadfence() {
}

inline unsigned atomicInc(unsigned *counter, unsigned limit) {
    unsigned before = *counter;
    *counter = before >= limit ? 0 : before + 1;
    return before;
}

enum cudaError_t { cudaSuccess, cudaErrorMemoryAllocation, cudaErrorInvalidValue };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
enum cudaMemoryType { cudaMemoryTypeHost, cudaMemoryTypeDevice, cudaMemoryTypeManaged };
typedef void *cudaStream_t;
struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem;
};
struct cudaPointerAttributes {
    cudaMemoryType type;
    int device;
};

inline cudaError_t cudaGetLastError() {
    return cudaSuccess;
}
inline const char *cudaGetErrorString(cudaError_t error) {
    return error == cudaErrorMemoryAllocation ? "out of memory" : "invalid argument";
}
inline cudaError_t cudaGetDeviceCount(int *count) {
    *count = 1;
    return cudaSuccess;
}
inline cudaError_t cudaGetDevice(int *device) {
    *device = 0;
    return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int device) {
    return device == 0 ? cudaSuccess : cudaErrorInvalidValue;
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device) {
    strcpy(properties->name, "emulated on the CPU"), properties->totalGlobalMem = 1 << 30;
    return cudaSetDevice(device);
}
inline cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *) {
    attributes->type = cudaMemoryTypeDevice, attributes->device = 0;
    return cudaSuccess;
}
/* An array ends where a page begins that must not be touched, so that a kernel which reads beyond it is caught. */
template <typename T> cudaError_t cudaMalloc(T **array, size_t bytes) {
    const size_t page = 4096, room = (bytes + 15) / 16 * 16, pages = (room + page - 1) / page * page;
    *array = nullptr;
    if (bytes >= (size_t)1 << 32) return cudaErrorMemoryAllocation;
    void *start = mmap(nullptr, pages + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) return cudaErrorMemoryAllocation;
    mprotect(static_cast<char *>(start) + pages, page, PROT_NONE);
    *array = reinterpret_cast<T *>(static_cast<char *>(start) + pages - room);
    emulated::arrays()[*array] = {start, pages + page};
    return cudaSuccess;
}
inline cudaError_t cudaFree(void *array) {
    auto found = emulated::arrays().find(array);
    if (found == emulated::arrays().end()) return cudaErrorInvalidValue;
    munmap(found->second.first, found->second.second);
    emulated::arrays().erase(found);
    return cudaSuccess;
}
inline cudaError_t cudaMemset(void *array, int value, size_t bytes) {
    memset(array, value, bytes);
    return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t) {
    memmove(to, from, bytes);
    return cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t) {
    return cudaSuccess;
}
/* A mark is the time at which it was set. */
typedef timespec *cudaEvent_t;
inline cudaError_t cudaEventCreate(cudaEvent_t *event) {
    *event = new timespec();
    return cudaSuccess;
}
inline cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete event;
    return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
    clock_gettime(CLOCK_MONOTONIC, event);
    return cudaSuccess;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t) {
    return cudaSuccess;
}
inline cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t first, cudaEvent_t last) {
    if (!first->tv_sec || !last->tv_sec) return cudaErrorInvalidValue; /* not set yet */
    *milliseconds = (float)((last->tv_sec - first->tv_sec) * 1e3 + (last->tv_nsec - first->tv_nsec) / 1e6);
    return cudaSuccess;
}
inline cudaError_t cudaDeviceSynchronize() {
    return cudaSuccess;
}

#endif
