/* What batch normalization needs of an instruction set: floats as doubles and back, channels turned side by side, products without
 * rounding. Included beside tiles.h. Macros where vectors wider than the processor's have no agreed way into a function. */
#if defined(__AVX2__)
#include <immintrin.h>
#endif

typedef int whole_lanes __attribute__((vector_size(LANES * sizeof(int))));
typedef unsigned whole_words __attribute__((vector_size(LANES * sizeof(int))));

/* ---- doubles ---------------------------------------------------------------------------------------------------------------- */

/* HALF: floats that are computed as doubles at a time; a vector has PARTS of them. */
#if LANES == 16
enum { HALF = 8, PARTS = 2 };
#else
enum { HALF = 4, PARTS = LANES / 4 };
#endif

typedef float half __attribute__((vector_size(HALF * sizeof(float))));
typedef float loose_half __attribute__((vector_size(HALF * sizeof(float)), aligned(4), may_alias));
typedef double wide __attribute__((vector_size(HALF * sizeof(double))));
typedef unsigned long long wide_words __attribute__((vector_size(HALF * sizeof(long long))));

/* PART: half k of a vector; JOIN: a vector of its parts; LOW_WORDS: the lower 32 bits of each double, in any order */
#if LANES == 16
#define PART(v, k)                                                                                                                 \
    ((half)((k) ? _mm512_extractf64x4_pd(_mm512_castps_pd((__m512)(v)), 1) : _mm512_castpd512_pd256(_mm512_castps_pd((__m512)(v)))))
#define JOIN(parts) ((lanes)_mm512_insertf64x4(_mm512_castpd256_pd512((__m256d)(parts)[0]), (__m256d)(parts)[1], 1))
#define WIDEN(h) ((wide)_mm512_cvtps_pd((__m256)(h)))
#define NARROW(w) ((half)_mm512_cvtpd_ps((__m512d)(w)))
#define LOW_WORDS(w) ((whole_words)_mm512_shuffle_ps((__m512)(w)[0], (__m512)(w)[1], 0x88))
#elif LANES == 8
#define PART(v, k) ((half)((k) ? _mm256_extractf128_ps((__m256)(v), 1) : _mm256_castps256_ps128((__m256)(v))))
#define JOIN(parts) ((lanes)_mm256_set_m128((__m128)(parts)[1], (__m128)(parts)[0]))
#define WIDEN(h) ((wide)_mm256_cvtps_pd((__m128)(h)))
#define NARROW(w) ((half)_mm256_cvtpd_ps((__m256d)(w)))
#define LOW_WORDS(w) ((whole_words)_mm256_shuffle_ps((__m256)(w)[0], (__m256)(w)[1], 0x88))
#else
#define PART(v, k) ((half)(v))
#define JOIN(parts) ((lanes)(parts)[0])
#define WIDEN(h) __builtin_convertvector(h, wide)
#define NARROW(w) __builtin_convertvector(w, half)
#define LOW_WORDS(w) __builtin_convertvector((wide_words)(w)[0], whole_words)
#endif

#define LOAD_HALF(from) ((half) * (const loose_half *)(from))
#define STORE_HALF(to, value) (void)(*(loose_half *)(to) = (value))

static inline int any(whole_lanes all) {
#if LANES == 16
    return _mm512_test_epi32_mask((__m512i)all, (__m512i)all) != 0;
#elif LANES == 8
    return !_mm256_testz_si256((__m256i)all, (__m256i)all);
#else
    typedef long long long_pair __attribute__((vector_size(16)));
    long_pair pair = (long_pair)all;
    return (pair[0] | pair[1]) != 0;
#endif
}

/* ---- products without rounding ---------------------------------------------------------------------------------------------- */

/* a * b + c and a * b - c rounded once. For what is exact or bounded so, never in place of two roundings that a formula has. Where
 * there are none, a product in double with the bounds of one is WIDE_TIMES_PLUS all the same. */
#if LANES == 16
#define FUSED 1
#define TIMES_PLUS(a, b, c) ((lanes)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define TIMES_MINUS(a, b, c) ((lanes)_mm512_fmsub_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define WIDE_TIMES_PLUS(a, b, c) ((wide)_mm512_fmadd_pd((__m512d)(a), (__m512d)(b), (__m512d)(c)))
#elif LANES == 8 && defined(__FMA__)
#define FUSED 1
#define TIMES_PLUS(a, b, c) ((lanes)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#define TIMES_MINUS(a, b, c) ((lanes)_mm256_fmsub_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#define WIDE_TIMES_PLUS(a, b, c) ((wide)_mm256_fmadd_pd((__m256d)(a), (__m256d)(b), (__m256d)(c)))
#else
#define FUSED 0
#define WIDE_TIMES_PLUS(a, b, c) ((a) * (b) + (c))
#endif

/* ---- channels side by side -------------------------------------------------------------------------------------------------- */

/* Four pixels of LANES channels, whose planes are `step` floats apart: four[p][i] = x[i*step + p] */
#if LANES == 16
#define ROW(i) _mm_loadu_ps(x + (i) * step)
static inline __attribute__((always_inline)) void turn_four(const float *x, size_t step, lanes *four) {
    __m512 row[4];
    for (size_t i = 0; i < 4; ++i) {
        row[i] = _mm512_castps128_ps512(ROW(i));
        row[i] = _mm512_insertf32x4(row[i], ROW(i + 4), 1);
        row[i] = _mm512_insertf32x4(row[i], ROW(i + 8), 2);
        row[i] = _mm512_insertf32x4(row[i], ROW(i + 12), 3);
    }
    __m512 low[2] = {_mm512_unpacklo_ps(row[0], row[1]), _mm512_unpacklo_ps(row[2], row[3])};
    __m512 high[2] = {_mm512_unpackhi_ps(row[0], row[1]), _mm512_unpackhi_ps(row[2], row[3])};
    four[0] = (lanes)_mm512_shuffle_ps(low[0], low[1], 0x44);
    four[1] = (lanes)_mm512_shuffle_ps(low[0], low[1], 0xee);
    four[2] = (lanes)_mm512_shuffle_ps(high[0], high[1], 0x44);
    four[3] = (lanes)_mm512_shuffle_ps(high[0], high[1], 0xee);
}
#elif LANES == 8
#define ROW(i) _mm_loadu_ps(x + (i) * step)
static inline __attribute__((always_inline)) void turn_four(const float *x, size_t step, lanes *four) {
    __m256 row[4];
    for (size_t i = 0; i < 4; ++i) row[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(ROW(i)), ROW(i + 4), 1);
    __m256 low[2] = {_mm256_unpacklo_ps(row[0], row[1]), _mm256_unpacklo_ps(row[2], row[3])};
    __m256 high[2] = {_mm256_unpackhi_ps(row[0], row[1]), _mm256_unpackhi_ps(row[2], row[3])};
    four[0] = (lanes)_mm256_shuffle_ps(low[0], low[1], 0x44);
    four[1] = (lanes)_mm256_shuffle_ps(low[0], low[1], 0xee);
    four[2] = (lanes)_mm256_shuffle_ps(high[0], high[1], 0x44);
    four[3] = (lanes)_mm256_shuffle_ps(high[0], high[1], 0xee);
}
#elif defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define SHUFFLES 1
static inline void turn_four(const float *x, size_t step, lanes *four) {
    lanes row[4];
    for (size_t i = 0; i < 4; ++i) row[i] = load(x + i * step);
    lanes low[2] = {__builtin_shufflevector(row[0], row[1], 0, 4, 1, 5), __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5)};
    lanes high[2] = {__builtin_shufflevector(row[0], row[1], 2, 6, 3, 7), __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7)};
    four[0] = __builtin_shufflevector(low[0], low[1], 0, 1, 4, 5);
    four[1] = __builtin_shufflevector(low[0], low[1], 2, 3, 6, 7);
    four[2] = __builtin_shufflevector(high[0], high[1], 0, 1, 4, 5);
    four[3] = __builtin_shufflevector(high[0], high[1], 2, 3, 6, 7);
}
#endif
#endif

#if LANES == 4 && !defined(SHUFFLES)
static inline void turn_four(const float *x, size_t step, lanes *four) {
    for (size_t p = 0; p < 4; ++p) four[p] = (lanes){x[p], x[step + p], x[2 * step + p], x[3 * step + p]};
}
#endif
