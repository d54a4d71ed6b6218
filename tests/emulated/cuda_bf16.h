/* CUDA's bfloat16 as far as the library uses it */
#ifndef EMULATED_CUDA_BF16_H
#define EMULATED_CUDA_BF16_H

#include <cmath>
#include <cstdint>
#include <cstring>

struct __nv_bfloat16 {
    uint16_t bits;
};

inline float __bfloat162float(__nv_bfloat16 x) {
    uint32_t bits = (uint32_t)x.bits << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* To the nearest, of two the even one */
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (std::isnan(x)) return {0x7fff};
    return {(uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

#endif
