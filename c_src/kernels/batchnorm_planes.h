/* The inner loops of batch normalization over one channel of one image, each value by itself (batchnorm.c). Included beside
 * batchnorm_lanes.h. */

typedef int whole_lanes __attribute__((vector_size(LANES * sizeof(int))));
typedef long long wide_bits __attribute__((vector_size(32)));

enum { PARTS = LANES / 4, STEP = 2 * LANES }; /* STEP: values that are taken at a time */

/* A quad of some lanes, and lanes of quads; macros for the same reason as in batchnorm_lanes.h */
#if defined(__AVX2__)
#define PART(v, k) ((quad)((k) ? _mm256_extractf128_ps((__m256)(v), 1) : _mm256_castps256_ps128((__m256)(v))))
#define JOIN(parts) ((lanes)_mm256_set_m128((__m128)(parts)[1], (__m128)(parts)[0]))
#else
#define PART(v, k) ((quad)(v))
#define JOIN(parts) ((lanes)(parts)[0])
#endif

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

static inline __attribute__((always_inline)) lanes divided(lanes off, double root) {
    quad parts[PARTS];
    for (size_t k = 0; k < PARTS; ++k) {
        wide w = WIDEN(PART(off, k)) / root;
        parts[k] = NARROW(w);
    }
    return JOIN(parts);
}

#if defined(__AVX2__)
static inline int any(whole_lanes all) {
    return !_mm256_testz_si256((__m256i)all, (__m256i)all);
}

static inline int any_wide(const wide_bits *all) {
    return !_mm256_testz_si256((__m256i)*all, (__m256i)*all);
}
#else
typedef long long half_bits __attribute__((vector_size(16)));

static inline int any(whole_lanes all) {
    half_bits half = (half_bits)all;
    return (half[0] | half[1]) != 0;
}

static inline int any_wide(const wide_bits *all) {
    return ((*all)[0] | (*all)[1] | (*all)[2] | (*all)[3]) != 0;
}
#endif

/* Values i..i+STEP */
static inline __attribute__((always_inline)) void quotients_step(const float *input, const divisor *by,
                                                                 const product_constants *product, int how, lanes *x,
                                                                 lanes *quotient) {
    lanes off[2];
    whole_lanes unsure = {0};
    for (size_t k = 0; k < 2; ++k) {
        x[k] = load(input + k * LANES), off[k] = x[k] - by->mean;
        if (how == BY_FLOAT)
            quotient[k] = off[k] / (float)by->root;
        else if (how == BY_DOUBLE)
            quotient[k] = divided(off[k], by->root);
        else
            quotient[k] = quotients(off[k], product, how == BY_PRODUCT_OR_TINY, &unsure);
    }
    if (how >= BY_PRODUCT && __builtin_expect(any(unsure), 0))
        quotient[0] = divided(off[0], by->root), quotient[1] = divided(off[1], by->root);
}

static inline __attribute__((always_inline)) void store_step(const plane_normalization *n, size_t i, const lanes *x,
                                                             const lanes *quotient) {
    for (size_t k = 0; k < 2; ++k) {
        if (n->x) store(n->x + i + k * LANES, x[k]);
        if (n->x_norm) store(n->x_norm + i + k * LANES, quotient[k]);
        store(n->output + i + k * LANES, quotient[k] * n->scale + n->bias);
    }
}

static inline __attribute__((always_inline)) void normalize_all(const plane_normalization *whole, int how) {
    const plane_normalization n = *whole; /* copies, which no store to the output can change */
    const divisor by = *n.by;
    const product_constants product = {by.head - (lanes){0}, by.low - (lanes){0}, by.high - (lanes){0}};
    lanes x[2], quotient[2], last_x[2], last[2];
    size_t i = 0, end = n.n - STEP;
    for (; i + STEP <= end; i += STEP) {
        quotients_step(n.input + i, &by, &product, how, x, quotient);
        store_step(&n, i, x, quotient);
    }
    /* The last two steps overlap and may be in place: both are computed before one is stored. */
    quotients_step(n.input + i, &by, &product, how, x, quotient);
    quotients_step(n.input + end, &by, &product, how, last_x, last);
    store_step(&n, i, x, quotient);
    store_step(&n, end, last_x, last);
}

/* Fewer values than a step */
static void normalize_few(const plane_normalization *n) {
    for (size_t i = 0; i < n->n; ++i) {
        float x = n->input[i], off = x - n->by->mean;
        float quotient = n->by->how == BY_FLOAT ? off / (float)n->by->root : (float)((double)off / n->by->root);
        if (n->x) n->x[i] = x;
        if (n->x_norm) n->x_norm[i] = quotient;
        n->output[i] = quotient * n->scale + n->bias;
    }
}

static void normalize(const plane_normalization *n) {
    if (n->n < STEP) {
        normalize_few(n);
        return;
    }
    switch (n->by->how) {
        case BY_FLOAT: normalize_all(n, BY_FLOAT); break;
        case BY_DOUBLE: normalize_all(n, BY_DOUBLE); break;
        case BY_PRODUCT: normalize_all(n, BY_PRODUCT); break;
        default: normalize_all(n, BY_PRODUCT_OR_TINY); break;
    }
}

/* ---- backward --------------------------------------------------------------------------------------------------------------- *
 * delta/root + variance_term*(x - mean)/count + mean_term, in double and left to right. Here too products stand for the quotients:
 * their sum errs by 9 * 2^-53 of the three magnitudes together. It is sure where it is farther than that from the next border
 * between two floats: 2^15 units of a double, which are 2^-38 of the sum, unless the three cancel to less than 2^-10 of the first
 * and the last. Subnormal results, whose borders are elsewhere, count as unsure. */

#define CANCELS 0x1p-10
#define NEAR 0x8000
#define BEYOND_FLOAT 0x1fffffff /* the 29 bits that a double has beyond a float */
#define BORDER 0x10000000       /* of those */
#define BEYOND_NEAR 0x1fff0000  /* those of them that say how far it is */

typedef struct {
    double inverse, rate;
    float of_first, least; /* the result's magnitude may not be below of_first * |scaled delta| + least */
} carry_constants;

/* A step's results */
static inline __attribute__((always_inline)) void carry_step(const plane_delta *d, const carry_constants *c, int constant, size_t i,
                                                             lanes *result) {
    lanes scaled[2], off[2];
    wide_bits near = {0};
    whole_lanes small = {0};
    for (size_t k = 0; k < 2; ++k) {
        quad parts[PARTS];
        scaled[k] = load(d->delta + i + k * LANES) * d->scale, off[k] = load(d->x + i + k * LANES) - d->mean;
        for (size_t q = 0; q < PARTS; ++q) {
            wide term = WIDEN(PART(scaled[k], q)) * c->inverse;
            if (!constant) term = term + WIDEN(PART(off[k], q)) * c->rate + d->mean_term;
            near |= ((((wide_bits)term & BEYOND_FLOAT) - (BORDER - NEAR)) & BEYOND_NEAR) == 0;
            parts[q] = NARROW(term);
        }
        result[k] = JOIN(parts);
        lanes size = (lanes)((whole_lanes)result[k] & MAGNITUDE), of = (lanes)((whole_lanes)scaled[k] & MAGNITUDE);
        small |= ~(size >= of * c->of_first + c->least);
    }
    if (__builtin_expect(!any(small) && !any_wide(&near), 1)) return;
    for (size_t k = 0; k < 2; ++k) {
        quad parts[PARTS];
        for (size_t q = 0; q < PARTS; ++q) {
            wide term = WIDEN(PART(scaled[k], q)) / d->root;
            if (!constant) term = term + d->variance_term * WIDEN(PART(off[k], q)) / d->count + d->mean_term;
            parts[q] = NARROW(term);
        }
        result[k] = JOIN(parts);
    }
}

static inline __attribute__((always_inline)) void carry_all(const plane_delta *whole, int constant) {
    const plane_delta d = *whole; /* a copy, which no store to the output can change */
    double inverse = 1 / d.root, size = d.mean_term < 0 ? -d.mean_term : d.mean_term;
    const carry_constants c = {inverse, d.variance_term / d.count, constant ? 0 : (float)(inverse * CANCELS),
                               (float)(size * CANCELS) + 0x1p-125F};
    lanes result[2], last[2];
    size_t i = 0, end = d.n - STEP;
    for (; i + STEP <= end; i += STEP) {
        carry_step(&d, &c, constant, i, result);
        store(d.output + i, result[0]), store(d.output + i + LANES, result[1]);
    }
    carry_step(&d, &c, constant, i, result); /* as in normalize_all() */
    carry_step(&d, &c, constant, end, last);
    store(d.output + i, result[0]), store(d.output + i + LANES, result[1]);
    store(d.output + end, last[0]), store(d.output + end + LANES, last[1]);
}

/* Fewer values than a step */
static void carry_few(const plane_delta *d) {
    for (size_t i = 0; i < d->n; ++i) {
        double term = (double)(d->delta[i] * d->scale) / d->root;
        if (!d->constant) term = term + d->variance_term * (double)(d->x[i] - d->mean) / d->count + d->mean_term;
        d->output[i] = (float)term;
    }
}

static void carry(const plane_delta *d) {
    if (d->n < STEP)
        carry_few(d);
    else if (d->constant)
        carry_all(d, 1);
    else
        carry_all(d, 0);
}
