/* exp, log, tanh and cubes: the package's own, which are inlined into loops that the compiler turns into vectors, and the system's.
 *
 * Own: additions, multiplications, divisions and moves of bits alone, each rounded by itself, without tables and branches, so that
 * every instruction set gives the same bits. The float functions are computed in double and rounded once. Of all 2^32 floats so many
 * have another result than with glibc 2.36 on a processor with FMA: exp 170,741 (.004 %), log 416,903 (.01 %) and x^3 955,682
 * (.022 %), the float beside it; tanh 118,674,314 (2.8 %), up to two floats off, as glibc's tanhf is itself. The double functions err
 * by less than 1 unit in the last place: in six million arguments exp by up to .82, tanh by .86 (glibc .51 and 2.15); x^3 of a
 * float is rounded once. Polynomials go through the Chebyshev points of their range, worked out in 70 digits. */
#ifndef DARKNETBN_ELEMENTARY_H
#define DARKNETBN_ELEMENTARY_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "inlined.h"

#if !defined(__cplusplus)
/* One set of functions; a formula that takes the address of a constant set has them inlined. */
typedef struct {
    const char *name;
    float (*expf)(float), (*logf)(float), (*tanhf)(float), (*cubef)(float);
    double (*exp)(double), (*tanh)(double), (*cube)(double);
} elementary;

/* The one in use: the own one, unless set_libm() says otherwise. */
const elementary *chosen_elementary(void);
int uses_own_functions(void);
#endif

/* ---- bits of a double ------------------------------------------------------------------------------------------------------- */

#define ROUNDER 0x1.8p52 /* x + ROUNDER holds x, rounded to a whole number, in its last bits, if that is below 2^51 */
enum { EXPONENT_BITS = 52, EXPONENT_BIAS = 1023 };

INLINED uint64_t bits_of(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

INLINED double of_bits(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* 2^k for the k that k + ROUNDER was */
INLINED double power_of_2(double shifted) {
    return of_bits((bits_of(shifted) + EXPONENT_BIAS) << EXPONENT_BITS);
}

/* Comparisons that are false for NaN, so that it goes through. */
INLINED double within(double x, double low, double high) {
    double below = x > high ? high : x;
    return below < low ? low : below;
}

/* ---- floats ----------------------------------------------------------------------------------------------------------------- */

/* 2^k * 2^r, r in -1/2..1/2; the polynomial errs by 2^-38.7. Beyond the limits the result is infinite or 0 as a float. */
INLINED float own_expf(float x) {
    double power = within((double)x, -104, 89) * 0x1.71547652b82fep+0;
    double shifted = power + ROUNDER, r = power - (shifted - ROUNDER), r2 = r * r;
    double low = (0x1.62e42fef9cc64p-1 + r * 0x1.ebfbdff82a732p-3) + r2 * (0x1.c6b08da70e7d3p-5 + r * 0x1.3b2ab70ad2cdcp-7);
    double high = (0x1.5d87759566b2fp-10 + r * 0x1.4308c716af450p-13) + r2 * (0x1.00c0e72005c22p-16 + r * 0x1.63b2da142583ap-20);
    return (float)((1 + r * (low + r2 * r2 * high)) * power_of_2(shifted));
}

/* The logarithm of a positive number, none of the smallest: that of 2^k, and for m in sqrt(1/2)..sqrt(2) 2s + s^3(2/3 + ...) with
 * s = (m - 1)/(m + 1); the polynomial errs by 2^-43. */
INLINED double log_of_positive(double x) {
    const uint64_t root_half = 0x3fe6a09e00000000, mantissa = 0x000fffffffffffff, whole = 0x4330000000000000; /* 2^52 */
    uint64_t shifted = bits_of(x) + (0x3ff0000000000000 - root_half);
    double k = of_bits(shifted >> EXPONENT_BITS | whole) - (0x1p52 + EXPONENT_BIAS);
    double f = of_bits((shifted & mantissa) + root_half) - 1, s = f / (2 + f), z = s * s, z2 = z * z;
    double low = 0x1.5555555564eb7p-1 + z * 0x1.999998cae671fp-2;
    double high = (0x1.249323f5fe0a4p-2 + z * 0x1.c67ad18010d25p-3) + z2 * 0x1.8c8cb725e2db5p-3;
    return k * 0x1.62e42fefa39efp-1 + (2 * s + s * z * (low + z2 * high));
}

INLINED float own_logf(float x) {
    double result = log_of_positive((double)x);
    if (!(x <= FLT_MAX)) result = (double)x; /* infinity and NaN */
    if (x == 0) result = -HUGE_VAL;
    if (x < 0) result = (double)NAN;
    return (float)result;
}

/* ---- doubles ---------------------------------------------------------------------------------------------------------------- */

#define LN2_HIGH 0x1.62e42fefa3800p-1 /* whose products with 11 bits are exact */
#define LN2_LOW 0x1.ef35793c76730p-45

/* exp(x) = 2^k * (1 + high + rest), |high + rest| below .42 */
typedef struct {
    double shifted; /* k + ROUNDER */
    double high, rest;
} reduced;

INLINED reduced reduce(double x) {
    double shifted = x * 0x1.71547652b82fep+0 + ROUNDER, k = shifted - ROUNDER;
    double high = x - k * LN2_HIGH, low = k * LN2_LOW, r = high - low, r2 = r * r, r4 = r2 * r2;
    double p3 = (0x1.5555555555556p-3 + r * 0x1.5555555555555p-5) + r2 * (0x1.11111111109b3p-7 + r * 0x1.6c16c16c167e1p-10);
    double p7 = (0x1.a01a01a7c41d5p-13 + r * 0x1.a01a01a47b054p-16) + r2 * (0x1.71de0dae63bb3p-19 + r * 0x1.27e4e1f48534fp-22);
    double p11 = 0x1.af38a9b0ec855p-26 + r * 0x1.1f66df7fca49fp-29;
    reduced e = {shifted, high, r2 * .5 + (r * r2 * (p3 + r4 * (p7 + r4 * p11)) - low)};
    return e;
}

/* In two powers of 2, since one would not reach infinity and the smallest numbers. */
INLINED double own_exp(double x) {
    reduced e = reduce(within(x, -760, 720));
    double k = e.shifted - ROUNDER, half = k * .5 + ROUNDER, other = k - (half - ROUNDER) + ROUNDER;
    return (1 + (e.high + e.rest)) * power_of_2(half) * power_of_2(other);
}

/* a - b*c as if rounded once, but for results so small that halves of the factors lose bits */
INLINED double less_product(double a, double b, double c) {
    const double splitter = 0x1p27 + 1;
    double b_high = b * splitter - (b * splitter - b), c_high = c * splitter - (c * splitter - c);
    double b_low = b - b_high, c_low = c - c_high, product = b * c;
    double off = ((b_high * c_high - product) + (b_high * c_low + b_low * c_high)) + b_low * c_low;
    return (a - product) - off;
}

/* (e - 1)/(e + 1) for e = exp(2|x|), each of the two with what its rounding left out, and the quotient corrected once. */
INLINED double own_tanh(double x) {
    const uint64_t sign = 0x8000000000000000;
    double magnitude = of_bits(bits_of(x) & ~sign);
    reduced e = reduce(2 * within(magnitude, 0, 22));
    double power = power_of_2(e.shifted), q = e.high + e.rest, q_rest = (e.high - q) + e.rest;
    double above = power * q + (power - 1), above_rest = (((power - 1) - above) + power * q) + power * q_rest;
    double below = above + 2, two = below - above, below_rest = (above - (below - two)) + (2 - two) + above_rest;
    double quotient = above / below, left = less_product(above, quotient, below) + (above_rest - quotient * below_rest);
    return of_bits(bits_of(quotient + left / below) | (bits_of(x) & sign));
}

INLINED float own_tanhf(float x) {
    return (float)own_tanh((double)x);
}

/* The square of a float is exact in double. */
INLINED double own_cube(double x) {
    return x * x * x;
}

INLINED float own_cubef(float x) {
    return (float)own_cube((double)x);
}

#if defined(__cplusplus)
/* The device's set, for the same formulas: the own functions alone, as members, since a device cannot call through host addresses. */
struct elementary {
    INLINED float expf(float x) {
        return own_expf(x);
    }
    INLINED float logf(float x) {
        return own_logf(x);
    }
    INLINED float tanhf(float x) {
        return own_tanhf(x);
    }
    INLINED float cubef(float x) {
        return own_cubef(x);
    }
    INLINED double exp(double x) {
        return own_exp(x);
    }
    INLINED double tanh(double x) {
        return own_tanh(x);
    }
    INLINED double cube(double x) {
        return own_cube(x);
    }
};
#else
static const elementary own_functions = {"own", own_expf, own_logf, own_tanhf, own_cubef, own_exp, own_tanh, own_cube};
#endif

#endif
