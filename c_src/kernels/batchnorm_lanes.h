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
static void delta_sums(const group_deltas *d) {
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
