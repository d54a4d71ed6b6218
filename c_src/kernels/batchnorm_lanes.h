/* The sums of batch normalization, channels side by side (batchnorm.c). Included beside tiles.h. */
#include "batchnorm_vectors.h"

#include "batchnorm_quotients.h"

/* Pixels first..first+count of column v of LANES channels, where that is less than four pixels or the column has fewer channels;
 * what is missing is 0. */
static void turn_rest(const float *x, const group *g, size_t v, size_t first, size_t count, lanes *four) {
    float tile[4 * LANES] = {0};
    size_t channels = g->channels - v * LANES < LANES ? g->channels - v * LANES : LANES;
    for (size_t i = 0; i < channels; ++i)
        for (size_t p = 0; p < count; ++p) tile[4 * i + p] = x[(v * LANES + i) * g->n + first + p];
    turn_four(tile, 4, four);
}

/* Asks the memory for what will be summed after this image, as much as the pixels first..first+4 are: their planes lie elsewhere, and
 * a processor does not guess where. */
static inline __attribute__((always_inline)) void ask_ahead(const float *next, size_t first, size_t channels) {
    enum { FLOATS_OF_A_LINE = 16 };
    for (size_t k = 0; k < 4 * channels; k += FLOATS_OF_A_LINE) __builtin_prefetch(next + first * channels + k);
}

/* The next pixels from first on in the end of four: how many, where they begin in it */
typedef struct {
    size_t count, from;
} next_pixels;

static inline __attribute__((always_inline)) next_pixels turn_next(const float *x, const group *g, size_t v, int whole,
                                                                   size_t first, lanes *four) {
    size_t left = g->n - first, count = left < 4 ? left : 4;
    if (whole && g->n >= 4) { /* the last four overlap those before */
        turn_four(x + v * LANES * g->n + first + count - 4, g->n, four);
        return (next_pixels){count, 4 - count};
    }
    turn_rest(x, g, v, first, count, four);
    return (next_pixels){count, 0};
}

static inline __attribute__((always_inline)) void sum_columns(const float *x, const group *g, size_t columns, int whole,
                                                              float *sums) {
    lanes s[VECTORS], four[4];
    for (size_t v = 0; v < columns; ++v) s[v] = load(sums + v * LANES);
    size_t p = 0;
    for (; whole && p + 4 <= g->n; p += 4) {
        ask_ahead(g->next, p, columns * LANES);
        for (size_t v = 0; v < columns; ++v) {
            turn_four(x + v * LANES * g->n + p, g->n, four);
            for (size_t k = 0; k < 4; ++k) s[v] += four[k];
        }
    }
    for (; p < g->n; p += 4) {
        for (size_t v = 0; v < columns; ++v) {
            next_pixels next = turn_next(x, g, v, whole, p, four);
            for (size_t k = 0; k < next.count; ++k) s[v] += four[next.from + k];
        }
    }
    for (size_t v = 0; v < columns; ++v) store(sums + v * LANES, s[v]);
}

/* sums[i] += x[i][0..n), one after the other */
static void sum(const float *x, const group *g, float *sums) {
    if (g->channels == 4 * LANES)
        sum_columns(x, g, 4, 1, sums);
    else if (g->channels == 2 * LANES)
        sum_columns(x, g, 2, 1, sums);
    else
        sum_columns(x, g, 1, g->channels == LANES, sums);
}

/* ---- squares ---------------------------------------------------------------------------------------------------------------- *
 * The difference in float, its square and the sum in double, each sum rounded to float. The square of a float is exact in double, so
 * that a fused product gives the same sum.
 *
 * The way to float and back is long, and every sum waits for the one before. So sums stay in double, and are rounded to 24 bits as
 * integers: up by less than half of the last of these, to even in the middle. That is the float where it is normal. Sums only grow, so
 * they are once the first one was; and what exceeds the floats does so until the end, where it becomes infinite. */

#define LAST 29 /* the bit of a double that is the last one of a float */
#define BELOW_LAST ((1ULL << LAST) - 1)

#define ROUNDED_WORDS(w) (((w) + (BELOW_LAST >> 1) + (((w) >> LAST) & 1)) & ~BELOW_LAST)

static inline
    __attribute__((always_inline)) void add_squares(const lanes *pixels, size_t columns, int normal, const lanes *mean, wide *s) {
    for (size_t v = 0; v < columns; ++v) {
        lanes off = pixels[v] - mean[v];
        for (size_t k = 0; k < PARTS; ++k) {
            wide one = WIDEN(PART(off, k)), added = WIDE_TIMES_PLUS(one, one, s[v * PARTS + k]);
            if (normal)
                s[v * PARTS + k] = (wide)ROUNDED_WORDS((wide_words)added);
            else {
                half rounded = NARROW(added);
                s[v * PARTS + k] = WIDEN(rounded);
            }
        }
    }
}

static inline int are_normal(const wide *s, size_t count) {
    for (size_t k = 0; k < count; ++k)
        for (size_t i = 0; i < HALF; ++i)
            if (!(s[k][i] >= 0x1p-126)) return 0;
    return 1;
}

/* The next four pixels or what is left, from first on; returns how many */
static inline __attribute__((always_inline)) size_t square_next(const float *x, const group *g, size_t columns, int normal,
                                                                size_t first, const lanes *mean, wide *s) {
    lanes four[4], pixels[4][VECTORS];
    next_pixels next = {0};
    for (size_t v = 0; v < columns; ++v) {
        next = turn_next(x, g, v, g->channels >= LANES, first, four);
        for (size_t k = 0; k < 4; ++k) pixels[k][v] = four[k];
    }
    for (size_t k = 0; k < next.count; ++k) add_squares(pixels[next.from + k], columns, normal, mean, s);
    return next.count;
}

static inline __attribute__((always_inline)) void square_columns(const float *x, const group *g, size_t columns, const float *means,
                                                                 float *sums) {
    lanes mean[VECTORS], four[4], pixels[4][VECTORS];
    wide s[VECTORS * PARTS];
    for (size_t v = 0; v < columns; ++v) mean[v] = load(means + v * LANES);
    for (size_t k = 0; k < columns * PARTS; ++k) s[k] = WIDEN(LOAD_HALF(sums + k * HALF));
    size_t p = 0;
    while (p < g->n && !are_normal(s, columns * PARTS)) p += square_next(x, g, columns, 0, p, mean, s);
    for (; g->channels >= LANES && p + 4 <= g->n; p += 4) {
        for (size_t v = 0; v < columns; ++v) {
            turn_four(x + v * LANES * g->n + p, g->n, four);
            for (size_t k = 0; k < 4; ++k) pixels[k][v] = four[k];
        }
        for (size_t k = 0; k < 4; ++k) add_squares(pixels[k], columns, 1, mean, s);
    }
    while (p < g->n) p += square_next(x, g, columns, 1, p, mean, s);
    for (size_t k = 0; k < columns * PARTS; ++k) STORE_HALF(sums + k * HALF, NARROW(s[k]));
}

static void squares(const float *x, const group *g, const float *means, float *sums) {
    if (g->channels == 4 * LANES)
        square_columns(x, g, 4, means, sums);
    else if (g->channels == 2 * LANES)
        square_columns(x, g, 2, means, sums);
    else
        square_columns(x, g, 1, means, sums);
}

/* ---- backward --------------------------------------------------------------------------------------------------------------- */

/* What the sums of LANES channels are made with */
typedef struct {
    lanes mean, scale, root;
    reciprocal_lanes reciprocal;
    int how;
} delta_constants;

/* The sum of delta * x_norm over the next pixels, with divisions */
static __attribute__((noinline, cold)) lanes add_divided(const group_deltas *d, size_t first, size_t count, lanes sum_) {
    for (size_t i = 0; i < d->group.channels; ++i) {
        const divisor *by = d->by + i;
        for (size_t p = i * d->group.n + first; p < i * d->group.n + first + count; ++p)
            sum_[i] += d->delta[p] * (float)((double)(d->x[p] - by->mean) / by->root);
    }
    return sum_;
}

/* Four pixels of x and delta, of which `next` go into the sums: of delta, delta * x_norm, scaled delta, scaled delta * (x - mean) */
static inline __attribute__((always_inline)) void add_deltas(const group_deltas *d, const delta_constants *c, int how, size_t first,
                                                             next_pixels next, const lanes *x, const lanes *delta, lanes *s) {
    lanes before = s[1];
    whole_lanes unsure = {0};
    for (size_t k = next.from; k < next.from + next.count; ++k) {
        lanes off = x[k] - c->mean, scaled = delta[k] * c->scale;
        s[0] += delta[k];
        s[1] += delta[k] * (how == BY_FLOAT ? off / c->root : quotients(off, &c->reciprocal, how == BY_PRODUCT_OR_TINY, &unsure));
        s[2] += scaled;
        s[3] += scaled * off;
    }
    if (how != BY_FLOAT && __builtin_expect(any(unsure), 0)) s[1] = add_divided(d, first, next.count, before);
}

static inline __attribute__((always_inline)) void sum_deltas(const group_deltas *d, const delta_constants *c, int how, lanes *s) {
    const group *g = &d->group;
    int whole = g->channels == LANES;
    lanes x[4], delta[4];
    size_t p = 0;
    for (; whole && p + 4 <= g->n; p += 4) {
        ask_ahead(g->next, p, LANES);
        ask_ahead(d->next_delta, p, LANES);
        turn_four(d->x + p, g->n, x);
        turn_four(d->delta + p, g->n, delta);
        add_deltas(d, c, how, p, (next_pixels){4, 0}, x, delta, s);
    }
    for (; p < g->n; p += 4) {
        turn_next(d->x, g, 0, whole, p, x);
        next_pixels next = turn_next(d->delta, g, 0, whole, p, delta);
        add_deltas(d, c, how, p, next, x, delta, s);
    }
}

/* With an x_norm that is there */
static void sum_given(const group_deltas *d, const delta_constants *c, lanes *s) {
    int whole = d->group.channels == LANES;
    lanes x[4], x_norm[4], delta[4];
    for (size_t p = 0; p < d->group.n; p += 4) {
        turn_next(d->x, &d->group, 0, whole, p, x);
        turn_next(d->x_norm, &d->group, 0, whole, p, x_norm);
        next_pixels next = turn_next(d->delta, &d->group, 0, whole, p, delta);
        for (size_t k = next.from; k < next.from + next.count; ++k) {
            lanes scaled = delta[k] * c->scale;
            s[0] += delta[k];
            s[1] += delta[k] * x_norm[k];
            s[2] += scaled;
            s[3] += scaled * (x[k] - c->mean);
        }
    }
}

static delta_constants constants_of(const group_deltas *d) {
    delta_constants c = {.how = d->by[0].how};
    for (size_t i = 0; i < LANES; ++i) { /* past the last channel that one again, whose sums nobody takes */
        size_t f = i < d->group.channels ? i : d->group.channels - 1;
        const divisor *by = d->by + f;
        c.mean[i] = by->mean, c.scale[i] = d->scales[f], c.root[i] = (float)by->root;
        set_reciprocal(&c.reciprocal, i, by);
        if (by->how == BY_PRODUCT_OR_TINY) c.how = BY_PRODUCT_OR_TINY; /* all are BY_FLOAT or none is */
    }
    return c;
}

static void delta_sums(const group_deltas *d) {
    const delta_constants c = constants_of(d);
    lanes s[4];
    for (size_t k = 0; k < 4; ++k) s[k] = load(d->sums[k]);
    if (d->x_norm)
        sum_given(d, &c, s);
    else if (c.how == BY_FLOAT)
        sum_deltas(d, &c, BY_FLOAT, s);
    else if (c.how == BY_PRODUCT)
        sum_deltas(d, &c, BY_PRODUCT, s);
    else
        sum_deltas(d, &c, BY_PRODUCT_OR_TINY, s);
    for (size_t k = 0; k < 4; ++k) store(d->sums[k], s[k]);
}
