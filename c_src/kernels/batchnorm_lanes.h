/* The inner loops of batch normalization, channels side by side (batchnorm.c). Included beside tiles.h. */
#if defined(__AVX2__)
#include <immintrin.h>
#endif

enum { BLOCK = 64 }; /* pixels that are turned at a time */

typedef float quad __attribute__((vector_size(16)));
typedef float loose_quad __attribute__((vector_size(16), aligned(4), may_alias));
typedef double wide __attribute__((vector_size(32)));

/* Macros, since vectors wider than the processor's have no agreed way into a function */
#if defined(__AVX2__)
#define WIDEN(q) ((wide)_mm256_cvtps_pd((__m128)(q)))
#define NARROW(w) ((quad)_mm256_cvtpd_ps((__m256d)(w)))
#else
#define WIDEN(q) __builtin_convertvector(q, wide)
#define NARROW(w) __builtin_convertvector(w, quad)
#endif

static inline quad load_quad(const float *from) {
    return *(const loose_quad *)from;
}

static inline void store_quad(float *to, quad value) {
    *(loose_quad *)to = value;
}

/* ---- channels side by side -------------------------------------------------------------------------------------------------- */

#if defined(__AVX2__)
/* Eight pixels of eight channels: to[p*step + i] = x[i][p] */
static inline void turn_square(const float *const *x, size_t p, float *to, size_t step) {
    __m256 row[8], pair[8], four[8];
    for (size_t i = 0; i < 8; ++i) row[i] = _mm256_loadu_ps(x[i] + p);
    for (size_t i = 0; i < 8; i += 2) {
        pair[i] = _mm256_unpacklo_ps(row[i], row[i + 1]);
        pair[i + 1] = _mm256_unpackhi_ps(row[i], row[i + 1]);
    }
    for (size_t i = 0; i < 8; i += 4) {
        for (size_t k = 0; k < 2; ++k) {
            four[i + 2 * k] = _mm256_shuffle_ps(pair[i + k], pair[i + k + 2], 0x44);
            four[i + 2 * k + 1] = _mm256_shuffle_ps(pair[i + k], pair[i + k + 2], 0xee);
        }
    }
    for (size_t k = 0; k < 4; ++k) {
        _mm256_storeu_ps(to + k * step, _mm256_permute2f128_ps(four[k], four[k + 4], 0x20));
        _mm256_storeu_ps(to + (k + 4) * step, _mm256_permute2f128_ps(four[k], four[k + 4], 0x31));
    }
}
#endif

/* to[p][i] = x[i][first + p] for the next pixels */
static void turn(const float *const *x, size_t width, size_t first, size_t count, float *to) {
    size_t done = 0;
#if defined(__AVX2__)
    for (; done + 8 <= count; done += 8)
        for (size_t i = 0; i < width; i += 8) turn_square(x + i, first + done, to + done * width + i, width);
#endif
    for (size_t i = 0; i < width; ++i)
        for (size_t p = done; p < count; ++p) to[p * width + i] = x[i][first + p];
}

static size_t block_from(size_t first, size_t n) {
    return n - first < BLOCK ? n - first : BLOCK;
}

static size_t turn_block(const float *const *x, const group *g, size_t first, float *to) {
    size_t count = block_from(first, g->n);
    turn(x, g->width, first, count, to);
    return count;
}

/* sums[i] += x[i][0..n), one after the other */
static void sum(const float *const *x, const group *g, float *sums) {
    float block[BLOCK * WIDTH];
    for (size_t first = 0; first < g->n; first += BLOCK) {
        size_t count = turn_block(x, g, first, block);
        for (size_t i = 0; i < g->width; i += LANES) {
            lanes s = load(sums + i);
            for (size_t p = 0; p < count; ++p) s += load(block + p * g->width + i);
            store(sums + i, s);
        }
    }
}

/* The difference in float, its square and the sum in double, each sum rounded to float */
static inline __attribute__((always_inline)) void add_squares(size_t quads, const float *block, size_t count, const float *means,
                                                              float *sums) {
    quad mean[WIDTH / 4], s[WIDTH / 4];
    for (size_t q = 0; q < quads; ++q) mean[q] = load_quad(means + 4 * q), s[q] = load_quad(sums + 4 * q);
    for (size_t p = 0; p < count; ++p, block += 4 * quads) {
        for (size_t q = 0; q < quads; ++q) {
            quad off = load_quad(block + 4 * q) - mean[q];
            wide square = WIDEN(off) * WIDEN(off), added = WIDEN(s[q]) + square;
            s[q] = NARROW(added);
        }
    }
    for (size_t q = 0; q < quads; ++q) store_quad(sums + 4 * q, s[q]);
}

static void squares(const float *const *x, const group *g, const float *means, float *sums) {
    float block[BLOCK * WIDTH];
    for (size_t first = 0; first < g->n; first += BLOCK) {
        size_t count = turn_block(x, g, first, block);
        if (g->width == WIDTH)
            add_squares(WIDTH / 4, block, count, means, sums);
        else
            add_squares(WIDTH / 8, block, count, means, sums);
    }
}

/* sums += delta; delta * x_norm; scaled delta; scaled delta * (x - mean) */
static void delta_sums(group_deltas *d) {
    float x[BLOCK * WIDTH], x_norm[BLOCK * WIDTH], delta[BLOCK * WIDTH];
    size_t width = d->group.width;
    for (size_t first = 0; first < d->group.n; first += BLOCK) {
        size_t count = turn_block(d->x, &d->group, first, x);
        turn_block(d->x_norm, &d->group, first, x_norm);
        turn_block(d->delta, &d->group, first, delta);
        for (size_t i = 0; i < width; i += LANES) {
            lanes bias = load(d->sums[0] + i), scale = load(d->sums[1] + i), mean = load(d->sums[2] + i);
            lanes variance = load(d->sums[3] + i), means = load(d->means + i), scales = load(d->scales + i);
            for (size_t p = 0; p < count; ++p) {
                lanes one = load(delta + p * width + i), scaled = one * scales;
                bias += one;
                scale += one * load(x_norm + p * width + i);
                mean += scaled;
                variance += scaled * (load(x + p * width + i) - means);
            }
            store(d->sums[0] + i, bias), store(d->sums[1] + i, scale);
            store(d->sums[2] + i, mean), store(d->sums[3] + i, variance);
        }
    }
}

/* ---- one channel of one image, each value by itself ------------------------------------------------------------------------- *
 * A division in double is slow, and its result only counts once it is rounded to float. So a product with the reciprocal is taken a
 * little too small and a little too large: where both round to the same float, the quotient between them does too, since rounding
 * keeps order. Elsewhere, about once in ten million values, the division is made. */

#define SLACK 0x1p-50 /* relative; reciprocal, product, quotient and two sums err by 2^-53 each */

#define MAGNITUDE 0x7fffffffffffffff

typedef long long bits __attribute__((vector_size(16)));
typedef long long wide_bits __attribute__((vector_size(32)));

static inline int differ(quad a, quad b, quad c, quad d) {
    bits all = ((bits)a ^ (bits)b) | ((bits)c ^ (bits)d);
#if defined(__AVX2__)
    return !_mm_testz_si128((__m128i)all, (__m128i)all);
#else
    return (all[0] | all[1]) != 0;
#endif
}

static inline float quotient_of(float off, const plane_normalization *n) {
    return n->intermediate == PRECISION_FLOAT ? off / (float)n->root : (float)((double)off / n->root);
}

static inline void normalize_some(const plane_normalization *n, size_t i, size_t end) {
    for (; i < end; ++i) {
        float x = n->input[i], quotient = quotient_of(x - n->mean, n);
        if (n->x) n->x[i] = x;
        if (n->x_norm) n->x_norm[i] = quotient;
        n->output[i] = quotient * n->scale + n->bias;
    }
}

static inline __attribute__((always_inline)) void normalize_all(const plane_normalization *whole, int narrow) {
    const plane_normalization n = *whole; /* a copy, which no store to the output can change */
    double low = 1 / n.root * (1 - SLACK), high = 1 / n.root * (1 + SLACK);
    float root = (float)n.root;
    size_t i = 0;
    for (; i + 8 <= n.n; i += 8) {
        quad x0 = load_quad(n.input + i), x1 = load_quad(n.input + i + 4), off0 = x0 - n.mean, off1 = x1 - n.mean, q0, q1;
        if (narrow) {
            q0 = off0 / root, q1 = off1 / root;
        } else {
            wide w0 = WIDEN(off0), w1 = WIDEN(off1), low0 = w0 * low, low1 = w1 * low, high0 = w0 * high, high1 = w1 * high;
            q0 = NARROW(low0), q1 = NARROW(low1);
            if (differ(q0, NARROW(high0), q1, NARROW(high1))) {
                w0 /= n.root, w1 /= n.root;
                q0 = NARROW(w0), q1 = NARROW(w1);
            }
        }
        if (n.x) store_quad(n.x + i, x0), store_quad(n.x + i + 4, x1);
        if (n.x_norm) store_quad(n.x_norm + i, q0), store_quad(n.x_norm + i + 4, q1);
        store_quad(n.output + i, q0 * n.scale + n.bias);
        store_quad(n.output + i + 4, q1 * n.scale + n.bias);
    }
    normalize_some(whole, i, n.n);
}

static void normalize(const plane_normalization *n) {
    if (n->intermediate == PRECISION_FLOAT)
        normalize_all(n, 1);
    else
        normalize_all(n, 0);
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
        wide slack = ((wide)((wide_bits)first & MAGNITUDE) + (wide)((wide_bits)second & MAGNITUDE) + sure) * SLACK;
        wide low = term - slack, high = term + slack;
        quad result = NARROW(low);
        if (differ(result, NARROW(high), result, result))
            for (size_t k = 0; k < 4; ++k) result[k] = carried(plane, delta[k], x[k]);
        store_quad(d.output + i, result);
    }
    for (; i < d.n; ++i) d.output[i] = carried(plane, d.delta[i], d.x[i]);
}
