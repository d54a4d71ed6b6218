/* The inner loops of batch normalization over one channel of one image, each value by itself (batchnorm.c). Included beside
 * batchnorm_lanes.h. */

typedef int whole_lanes __attribute__((vector_size(LANES * sizeof(int))));

/* ---- quotients -------------------------------------------------------------------------------------------------------------- *
 * A division in double is slow, and its result only counts once it is rounded to float. So the product with the reciprocal is taken
 * a little too small and a little too large: where both round to the same float, the quotient between them does too, since rounding
 * keeps order. Elsewhere, about once in 700 values, the division is made.
 *
 * All in float: numerator and reciprocal are cut into 12 bits and a rest, so that three of the four products are exact. What errs,
 * relative to the quotient, by 4.01 * 2^-36 together, within QUOTIENT_SLACK: the product with the reciprocal's rest (2^-12 of the
 * whole, so 2^-36) and its sum with the other small product (3 * 2^-12 at most, so 3 * 2^-36). An infinite or undefined value makes
 * the difference of the two undefined. Nothing is subnormal as long as no numerator is tiny, and a difference from a mean that is
 * not tiny is not: x - mean is 0 or at least 2^-26 of it. */

#define TINY 0x1p-66F
#define FRONT (-0x1000) /* sign, exponent and 11 bits of the mantissa, which are 12 with its hidden one */
#define MAGNITUDE 0x7fffffff

typedef struct {
    lanes head, low, high;
} product_constants;

/* Adds to unsure where the quotient needs a division. tiny: there may be tiny numerators. */
static inline __attribute__((always_inline)) lanes quotients(lanes off, const product_constants *by, int tiny,
                                                             whole_lanes *unsure) {
    lanes front = (lanes)((whole_lanes)off & FRONT), back = off - front;
    lanes most = front * by->head, more = back * by->head;
    lanes one = most + (more + off * by->low), other = most + (more + off * by->high);
    *unsure |= (whole_lanes)(one - other);
    if (tiny) *unsure |= (lanes)((whole_lanes)off & MAGNITUDE) < TINY;
    return one;
}

static inline float quotient_of(float off, const divisor *by) {
    return by->how == BY_FLOAT ? off / (float)by->root : (float)((double)off / by->root);
}

static inline __attribute__((always_inline)) lanes divided(lanes off, double root) {
    float values[LANES];
    store(values, off);
    for (size_t k = 0; k < LANES; k += 4) {
        wide w = WIDEN(load_quad(values + k)) / root;
        store_quad(values + k, NARROW(w));
    }
    return load(values);
}

static inline int any(whole_lanes bits) {
#if defined(__AVX2__)
    return !_mm256_testz_si256((__m256i)bits, (__m256i)bits);
#else
    typedef long long words __attribute__((vector_size(LANES * sizeof(int))));
    words all = (words)bits;
    long long some = 0;
    for (size_t k = 0; k < LANES / 2; ++k) some |= all[k];
    return some != 0;
#endif
}

static inline void normalize_some(const plane_normalization *n, size_t i) {
    for (; i < n->n; ++i) {
        float x = n->input[i], quotient = quotient_of(x - n->by->mean, n->by);
        if (n->x) n->x[i] = x;
        if (n->x_norm) n->x_norm[i] = quotient;
        n->output[i] = quotient * n->scale + n->bias;
    }
}

static inline __attribute__((always_inline)) void normalize_all(const plane_normalization *whole, int how) {
    const plane_normalization n = *whole; /* copies, which no store to the output can change */
    const divisor by = *n.by;
    const product_constants product = {by.head - (lanes){0}, by.low - (lanes){0}, by.high - (lanes){0}};
    float root = (float)by.root;
    size_t i = 0;
    for (; i + 2 * LANES <= n.n; i += 2 * LANES) {
        lanes x[2], off[2], quotient[2];
        whole_lanes unsure = {0};
        for (size_t k = 0; k < 2; ++k) {
            x[k] = load(n.input + i + k * LANES), off[k] = x[k] - by.mean;
            if (how == BY_FLOAT)
                quotient[k] = off[k] / root;
            else if (how == BY_DOUBLE)
                quotient[k] = divided(off[k], by.root);
            else
                quotient[k] = quotients(off[k], &product, how == BY_PRODUCT_OR_TINY, &unsure);
        }
        if (how >= BY_PRODUCT && __builtin_expect(any(unsure), 0))
            quotient[0] = divided(off[0], by.root), quotient[1] = divided(off[1], by.root);
        for (size_t k = 0; k < 2; ++k) {
            if (n.x) store(n.x + i + k * LANES, x[k]);
            if (n.x_norm) store(n.x_norm + i + k * LANES, quotient[k]);
            store(n.output + i + k * LANES, quotient[k] * n.scale + n.bias);
        }
    }
    normalize_some(whole, i);
}

static void normalize(const plane_normalization *n) {
    switch (n->by->how) {
        case BY_FLOAT: normalize_all(n, BY_FLOAT); break;
        case BY_DOUBLE: normalize_all(n, BY_DOUBLE); break;
        case BY_PRODUCT: normalize_all(n, BY_PRODUCT); break;
        default: normalize_all(n, BY_PRODUCT_OR_TINY); break;
    }
}

/* ---- backward --------------------------------------------------------------------------------------------------------------- */

#define WIDE_MAGNITUDE 0x7fffffffffffffff
#define SLACK 0x1p-50 /* relative; reciprocal, product, quotient and two sums err by 2^-53 each */

typedef long long bits __attribute__((vector_size(16)));
typedef long long wide_bits __attribute__((vector_size(32)));

static inline int differ(quad a, quad b) {
    bits all = (bits)a ^ (bits)b;
#if defined(__AVX2__)
    return !_mm_testz_si128((__m128i)all, (__m128i)all);
#else
    return (all[0] | all[1]) != 0;
#endif
}

/* delta/root + variance_term*(x - mean)/count + mean_term, left to right */
static inline float carried(const plane_delta *d, float delta, float x) {
    double term = (double)(delta * d->scale) / d->root;
    if (!d->constant) term = term + d->variance_term * (double)(x - d->mean) / d->count + d->mean_term;
    return (float)term;
}

static void carry(const plane_delta *plane) {
    const plane_delta d = *plane; /* a copy, which no store to the output can change */
    double inverse = 1 / d.root, share = d.constant ? 0 : 1 / d.count, sure = d.mean_term < 0 ? -d.mean_term : d.mean_term;
    size_t i = 0;
    for (; i + 4 <= d.n; i += 4) {
        quad delta = load_quad(d.delta + i), x = load_quad(d.x + i), off = x - d.mean, scaled = delta * d.scale;
        wide first = WIDEN(scaled) * inverse, second = {0}, term = first;
        if (!d.constant) {
            second = d.variance_term * WIDEN(off) * share;
            term = first + second + d.mean_term;
        }
        wide slack = ((wide)((wide_bits)first & WIDE_MAGNITUDE) + (wide)((wide_bits)second & WIDE_MAGNITUDE) + sure) * SLACK;
        wide low = term - slack, high = term + slack;
        quad result = NARROW(low);
        if (differ(result, NARROW(high)))
            for (size_t k = 0; k < 4; ++k) result[k] = carried(plane, delta[k], x[k]);
        store_quad(d.output + i, result);
    }
    for (; i < d.n; ++i) d.output[i] = carried(plane, d.delta[i], d.x[i]);
}
