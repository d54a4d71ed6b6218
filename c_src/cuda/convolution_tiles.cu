/* Convolution by tiles: a block of 256 threads computes 16N filters times 16N pixels, each thread N times N of them in registers. Both
 * sides come through shared memory, 64/N of the depth at a time, the pixels straight from the image; the next share is on its way while
 * one is multiplied. Each output has one sum, from depth 0 upwards, so that the bits are those of convolution_plain.cu. Where the last
 * share is not full, zeros are multiplied, and a sum that began with +0 is the same when +0 is added to it.
 *
 * Columns are the pixels of all images of the batch, one after another. */
#include "convolution.h"
#include "storage.cuh"

namespace {

enum {
    THREADS = 256,
    WARP = 32,
    WARPS = THREADS / WARP,
    SIDE_THREADS = 16,
    SHARE = 4 /* values of each side that a thread fetches */
};
constexpr size_t WANTED_BLOCKS = 128, MOST_BLOCKS = 1 << 30;

template <int N> struct sizes {
    static constexpr int side = SIDE_THREADS * N, depth = THREADS * SHARE / side;
    static constexpr int vector = N < 4 ? N : 4;                    /* values that lie beside each other in a thread's registers */
    static constexpr int parts = side / WARP, rows = SHARE / parts; /* of the columns that a thread fetches */
};

/* A share of one side, [depth][filter or pixel]; rows are longer than needed, so that what a warp writes lies in many banks */
template <int N> struct alignas(16) share {
    float values[sizes<N>::depth][sizes<N>::side + sizes<N>::vector];
};

/* Which filters and columns a block computes */
struct tile {
    unsigned group, filter, column;
};

struct tiling {
    unsigned filters, columns; /* tiles of a group on either side */
    size_t all;
};

template <int N> tiling tiling_of(const convolution_gpu &v) {
    tiling t = {(v.n + sizes<N>::side - 1) / sizes<N>::side, (v.columns + sizes<N>::side - 1) / sizes<N>::side, 0};
    t.all = (size_t)t.filters * t.columns * v.groups;
    return t;
}

/* Tiles of the same columns follow each other, which then come from a cache. */
template <int N> __device__ inline tile tile_of(const tiling &t, size_t i) {
    unsigned filter = (unsigned)(i % t.filters), column = (unsigned)(i / t.filters % t.columns);
    return {(unsigned)(i / t.filters / t.columns), filter * sizes<N>::side, column * sizes<N>::side};
}

/* What one thread fetches of a tile: of the filters one depth and every so many rows, of the columns rows of a warp's own and one
 * pixel in each part. */
template <int N> struct fetcher {
    const float *weights; /* of the thread's first filter */
    unsigned filters, k;  /* filters left from there; the depth within a share */
    window columns[sizes<N>::parts];
    float fetched_weights[SHARE], fetched_values[SHARE];
};

template <int N> __device__ inline fetcher<N> fetcher_of(const convolution_gpu &v, const tile &t) {
    fetcher<N> f;
    unsigned row = threadIdx.x / sizes<N>::depth, filter = t.filter + row;
    f.k = threadIdx.x % sizes<N>::depth;
    f.weights = v.weights + ((size_t)t.group * v.n + filter) * v.depth;
    f.filters = filter < v.n ? v.n - filter : 0;
#pragma unroll
    for (int part = 0; part < sizes<N>::parts; ++part) {
        unsigned column = t.column + part * WARP + threadIdx.x % WARP;
        unsigned there = column < v.columns ? column : v.columns - 1; /* what is computed beyond is not stored */
        const float *group = v.input + t.group * v.group_floats;
        f.columns[part] = window_of(v, group + there / v.pixels * v.image_floats, there % v.pixels);
    }
    return f;
}

/* The share that begins at depth `first`, into registers */
template <int N> __device__ inline void fetch(const convolution_gpu &v, fetcher<N> &f, unsigned first) {
    const unsigned step = THREADS / sizes<N>::depth, k = first + f.k;
#pragma unroll
    for (int i = 0; i < SHARE; ++i)
        f.fetched_weights[i] = k < v.depth && i * step < f.filters ? f.weights[(size_t)i * step * v.depth + k] : 0;
#pragma unroll
    for (int row = 0; row < sizes<N>::rows; ++row) {
        unsigned own = first + threadIdx.x / WARP + row * WARPS;
        element e = element_of(v, own);
#pragma unroll
        for (int part = 0; part < sizes<N>::parts; ++part)
            f.fetched_values[row * sizes<N>::parts + part] = own < v.depth ? value_under(v, f.columns[part], e) : 0;
    }
}

/* From the registers into shared memory */
template <int N> __device__ inline void put(const fetcher<N> &f, share<N> &filters, share<N> &columns) {
    const unsigned step = THREADS / sizes<N>::depth;
#pragma unroll
    for (int i = 0; i < SHARE; ++i) filters.values[f.k][threadIdx.x / sizes<N>::depth + i * step] = f.fetched_weights[i];
#pragma unroll
    for (int row = 0; row < sizes<N>::rows; ++row)
#pragma unroll
        for (int part = 0; part < sizes<N>::parts; ++part)
            columns.values[threadIdx.x / WARP + row * WARPS][part * WARP + threadIdx.x % WARP] =
                f.fetched_values[row * sizes<N>::parts + part];
}

/* Which filter or pixel of a tile register i of thread `own` of a side is: vectors of all threads, then the next ones */
template <int N> __device__ inline unsigned place(int i, unsigned own) {
    constexpr int vector = sizes<N>::vector;
    return i / vector * SIDE_THREADS * vector + own * vector + i % vector;
}

template <int N> __device__ inline void multiply(const share<N> &filters, const share<N> &columns, float (&sums)[N][N]) {
    constexpr int vector = sizes<N>::vector;
    unsigned y = threadIdx.x / SIDE_THREADS, x = threadIdx.x % SIDE_THREADS;
#pragma unroll
    for (int k = 0; k < sizes<N>::depth; ++k) {
        float a[N], b[N];
#pragma unroll
        for (int i = 0; i < N; i += vector) {
            load<float, vector>(&filters.values[k][place<N>(i, y)], a + i);
            load<float, vector>(&columns.values[k][place<N>(i, x)], b + i);
        }
#pragma unroll
        for (int i = 0; i < N; ++i)
#pragma unroll
            for (int j = 0; j < N; ++j) sums[i][j] += a[i] * b[j];
    }
}

template <int N> __device__ inline void store_sums(const convolution_gpu &v, const tile &t, const float (&sums)[N][N]) {
    unsigned y = threadIdx.x / SIDE_THREADS, x = threadIdx.x % SIDE_THREADS;
#pragma unroll
    for (int j = 0; j < N; ++j) {
        unsigned column = t.column + place<N>(j, x);
        if (column >= v.columns) continue;
        size_t image = column / v.pixels, pixel = column % v.pixels;
        float *output = v.output + (image * v.groups + t.group) * v.n * v.pixels + pixel;
#pragma unroll
        for (int i = 0; i < N; ++i) {
            unsigned filter = t.filter + place<N>(i, y);
            if (filter < v.n) output[(size_t)filter * v.pixels] = sums[i][j];
        }
    }
}

template <int N> __global__ void __launch_bounds__(THREADS) convolve_tiles_kernel(convolution_gpu v, tiling all) {
    __shared__ share<N> filters, columns;
    for (size_t i = blockIdx.x; i < all.all; i += gridDim.x) {
        tile t = tile_of<N>(all, i);
        fetcher<N> f = fetcher_of<N>(v, t);
        float sums[N][N] = {};
        fetch<N>(v, f, 0);
        for (unsigned first = 0; first < v.depth; first += sizes<N>::depth) {
            __syncthreads(); /* the share before has been read */
            put<N>(f, filters, columns);
            __syncthreads();
            if (first + sizes<N>::depth < v.depth) fetch<N>(v, f, first + sizes<N>::depth);
            multiply<N>(filters, columns, sums);
        }
        store_sums<N>(v, t, sums);
    }
}

template <int N> cudaError_t launch(const convolution_gpu &v, cudaStream_t stream) {
    tiling t = tiling_of<N>(v);
    LAUNCH((convolve_tiles_kernel<N>), (unsigned)(t.all < MOST_BLOCKS ? t.all : MOST_BLOCKS), THREADS, stream)(v, t);
    return cudaGetLastError();
}

/* Whether tiles of that size are filled by half and enough to keep a device busy */
template <int N> bool fits(const convolution_gpu &v) {
    return v.n > sizes<N>::side / 2 && tiling_of<N>(v).all >= WANTED_BLOCKS;
}

} // namespace

cudaError_t convolve_tiled_gpu(const convolution_gpu &v, cudaStream_t stream) {
    if (fits<8>(v)) return launch<8>(v, stream);
    return fits<4>(v) ? launch<4>(v, stream) : launch<2>(v, stream);
}
