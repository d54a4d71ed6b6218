/* Functions that are one text for C and for CUDA, where they run on the device too. */
#ifndef DARKNETBN_INLINED_H
#define DARKNETBN_INLINED_H

#if defined(__CUDACC__)
#define DARKNETBN_DEVICE static __host__ __device__ inline
#define INLINED DARKNETBN_DEVICE
#else
#define DARKNETBN_DEVICE static inline
#if defined(__GNUC__)
#define INLINED static inline __attribute__((always_inline)) /* into loops that become vectors */
#else
#define INLINED static inline
#endif
#endif

#endif
