/* Quotients without divisions. Included by batchnorm_lanes.h.
 *
 * A division in double is slow, and its result only counts once it is rounded to float. So the product with the reciprocal is taken
 * a little too small and a little too large: where both round to the same float, the quotient between them does too, since rounding
 * keeps order. (The two are sums of two floats, which a double holds where they are close to the middle of two floats, so that the
 * quotient's own rounding to double changes nothing.) Elsewhere the division is made. An infinite or undefined value makes the
 * difference of the two undefined; so does the reciprocal of a root for which this is not shown, which is undefined.
 *
 * All in float. With fused products, head is the reciprocal rounded to float, and the product with it and its error are both exact.
 * What errs, relative to the quotient, by 1.6 * 2^-47 together, within FUSED_SLACK: the sum of that error with the product with the
 * reciprocal's rest (2^-23 of the whole at most, so 2^-47), the rest itself (2^-24 of the whole, so 2^-48) and the reciprocal in
 * double (2^-53). About once in 2^21 values a division is made.
 *
 * Without them, numerator and reciprocal are cut into 12 bits and a rest, so that three of the four products are exact. What errs, by
 * 5.01 * 2^-36 together, within CUT_SLACK: the product with the reciprocal's rest (2^-12 of the whole, so 2^-36), its sum with the
 * other small product (3 * 2^-12 at most, so 3 * 2^-36) and the rest itself (2^-36). About once in 600 values a division is made.
 *
 * No product is subnormal as long as no numerator is tiny, and a difference from a mean that is not tiny is not: x - mean is 0 or at
 * least 2^-26 of it. Roots are from 2^-20 to 2^20: products are above 2^-77, their errors multiples of 2^-124 or, flushed to 0, less
 * than 2^-49 of the quotient. */

#define TINY 0x1p-56F
#define FRONT (-0x1000) /* sign, exponent and 11 bits of the mantissa, which are 12 with its hidden one */
#define MAGNITUDE 0x7fffffff

typedef struct {
    lanes head, low, high;
} reciprocal_lanes;

#if FUSED
#define RECIPROCAL(by) ((by)->fused)
#else
#define RECIPROCAL(by) ((by)->cut)
#endif

static inline __attribute__((always_inline)) void set_reciprocal(reciprocal_lanes *r, size_t i, const divisor *by) {
    r->head[i] = RECIPROCAL(by).head, r->low[i] = RECIPROCAL(by).low, r->high[i] = RECIPROCAL(by).high;
}

static inline __attribute__((always_inline)) reciprocal_lanes reciprocal_of(const divisor *by) {
    const lanes zero = {0};
    return (reciprocal_lanes){RECIPROCAL(by).head - zero, RECIPROCAL(by).low - zero, RECIPROCAL(by).high - zero};
}

/* Adds to unsure where the quotient needs a division. tiny: there may be tiny numerators. */
static inline __attribute__((always_inline)) lanes quotients(lanes off, const reciprocal_lanes *by, int tiny, whole_lanes *unsure) {
#if FUSED
    lanes most = off * by->head, error = TIMES_MINUS(off, by->head, most);
    lanes one = most + TIMES_PLUS(off, by->low, error), other = most + TIMES_PLUS(off, by->high, error);
#else
    lanes front = (lanes)((whole_lanes)off & FRONT), back = off - front;
    lanes most = front * by->head, more = back * by->head;
    lanes one = most + (more + off * by->low), other = most + (more + off * by->high);
#endif
    *unsure |= (whole_lanes)(one - other);
    if (tiny) *unsure |= (lanes)((whole_lanes)off & MAGNITUDE) < TINY;
    return one;
}
