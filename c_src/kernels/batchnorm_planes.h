/* The inner loops of batch normalization over one channel of one image after another, each value by itself (batchnorm.c). Included
 * beside batchnorm_lanes.h. */

enum { STEP = 2 * LANES }; /* values that are taken at a time */

/* ---- forward ---------------------------------------------------------------------------------------------------------------- */

typedef struct {
    const float *input;
    float *x, *x_norm, *output;
    float scale, bias;
} plane;

/* Which of the three arrays are made: only the output, x too, or those that are not NULL */
enum { OUTPUT, OUTPUT_AND_X, ANY };

static __attribute__((noinline)) void divide_step(const float *input, const divisor *by, lanes *quotient) {
    for (size_t k = 0; k < 2; ++k)
        for (size_t i = 0; i < LANES; ++i) quotient[k][i] = (float)((double)(input[k * LANES + i] - by->mean) / by->root);
}

/* The values of a step */
static inline __attribute__((always_inline)) void quotients_step(const float *input, const divisor *by,
                                                                 const reciprocal_lanes *reciprocal, int how, lanes *quotient) {
    whole_lanes unsure = {0};
    for (size_t k = 0; k < 2; ++k) {
        lanes off = load(input + k * LANES) - by->mean;
        if (how == BY_FLOAT)
            quotient[k] = off / (float)by->root;
        else
            quotient[k] = quotients(off, reciprocal, how == BY_PRODUCT_OR_TINY, &unsure);
    }
    if (how == BY_FLOAT || __builtin_expect(!any(unsure), 1)) return;
    lanes exact[2]; /* so that the others need not be in memory */
    divide_step(input, by, exact);
    quotient[0] = exact[0], quotient[1] = exact[1];
}

static inline __attribute__((always_inline)) void copy_step(const plane *n, size_t i, int made) {
    if (made == ANY ? n->x == NULL : made != OUTPUT_AND_X) return;
    for (size_t k = 0; k < 2; ++k) store(n->x + i + k * LANES, load(n->input + i + k * LANES));
}

static inline __attribute__((always_inline)) void store_step(const plane *n, size_t i, int made, const lanes *quotient) {
    for (size_t k = 0; k < 2; ++k) {
        if (made == ANY && n->x_norm) store(n->x_norm + i + k * LANES, quotient[k]);
        if (made != ANY || n->output) store(n->output + i + k * LANES, quotient[k] * n->scale + n->bias);
    }
}

static inline __attribute__((always_inline)) void normalize_all(const plane *n, size_t count, const divisor *divided, int how,
                                                                int made) {
    const divisor by = *divided; /* a copy, which no store to the output can change */
    const reciprocal_lanes reciprocal = reciprocal_of(&by);
    lanes quotient[2], last[2];
    size_t i = 0, end = count - STEP;
    for (; i + STEP <= end; i += STEP) {
        quotients_step(n->input + i, &by, &reciprocal, how, quotient);
        copy_step(n, i, made);
        store_step(n, i, made, quotient);
    }
    /* The last two steps overlap and may be in place: both are computed before one is stored. */
    quotients_step(n->input + i, &by, &reciprocal, how, quotient);
    quotients_step(n->input + end, &by, &reciprocal, how, last);
    copy_step(n, i, made), copy_step(n, end, made);
    store_step(n, i, made, quotient), store_step(n, end, made, last);
}

/* Fewer values than a step */
static void normalize_few(const plane *n, size_t count, const divisor *by) {
    for (size_t i = 0; i < count; ++i) {
        float x = n->input[i], off = x - by->mean;
        float quotient = by->how == BY_FLOAT ? off / (float)by->root : (float)((double)off / by->root);
        if (n->x) n->x[i] = x;
        if (n->x_norm) n->x_norm[i] = quotient;
        if (n->output) n->output[i] = quotient * n->scale + n->bias;
    }
}

static inline float *plane_at(float *array, size_t offset) {
    return array ? array + offset : NULL;
}

/* Planes from number i on, as long as their quotients are made in the same way; returns the next number */
static inline __attribute__((always_inline)) size_t normalize_run(const plane_normalization *whole, size_t i, int how, int made) {
    const plane_normalization n = *whole;
    for (; i < n.planes && n.by[i].how == how; ++i) {
        const plane one = {
            n.input + i * n.n, plane_at(n.x, i * n.n), plane_at(n.x_norm, i * n.n), plane_at(n.output, i * n.n), n.scales[i],
            n.biases[i]};
        if (n.n < STEP)
            normalize_few(&one, n.n, n.by + i);
        else
            normalize_all(&one, n.n, n.by + i, how, made);
    }
    return i;
}

static void normalize(const plane_normalization *n) {
    for (size_t i = 0; i < n->planes;) {
        int how = n->by[i].how;
        if (how == BY_FLOAT)
            i = normalize_run(n, i, BY_FLOAT, ANY);
        else if (how == BY_PRODUCT_OR_TINY)
            i = normalize_run(n, i, BY_PRODUCT_OR_TINY, ANY);
        else if (n->x_norm || !n->output)
            i = normalize_run(n, i, BY_PRODUCT, ANY);
        else if (n->x)
            i = normalize_run(n, i, BY_PRODUCT, OUTPUT_AND_X);
        else
            i = normalize_run(n, i, BY_PRODUCT, OUTPUT);
    }
}

/* ---- backward --------------------------------------------------------------------------------------------------------------- *
 * delta/root + variance_term*(x - mean)/count + mean_term, in double and left to right. Here too products stand for the quotients:
 * their sum errs by 9 * 2^-53 of the three magnitudes together. It is sure where it is farther than that from the next border
 * between two floats: 2^15 units of a double, which are 2^-38 of the sum, unless the three cancel to less than 2^-10 of the first
 * and the last. Subnormal results, whose borders are elsewhere, count as unsure. */

#define NEAR 0x8000
#define BORDER 0x10000000      /* of the 29 bits that a double has beyond a float */
#define BEYOND_NEAR 0x1fff0000 /* those of them that say how far it is */

/* With divisions, one value after another */
static __attribute__((noinline)) void carry_few(const float *x, const float *delta, float *output, size_t n, const delta_terms *t,
                                                int constant) {
    for (size_t i = 0; i < n; ++i) {
        double term = (double)(delta[i] * t->scale) / t->root;
        if (!constant) term = term + t->variance_term * (double)(x[i] - t->mean) / t->count + t->mean_term;
        output[i] = (float)term;
    }
}

/* A step's results */
static inline __attribute__((always_inline)) void carry_step(const float *x, const float *delta, const delta_terms *t, int constant,
                                                             lanes *result) {
    lanes scaled[2], off[2];
    whole_lanes unsure = {0};
    for (size_t k = 0; k < 2; ++k) {
        half parts[PARTS];
        wide terms[PARTS];
        scaled[k] = load(delta + k * LANES) * t->scale, off[k] = load(x + k * LANES) - t->mean;
        for (size_t q = 0; q < PARTS; ++q) {
            terms[q] =
                constant ? WIDEN(PART(scaled[k], q)) * t->inverse
                         : WIDE_TIMES_PLUS(WIDEN(PART(scaled[k], q)), t->inverse - (wide){0},
                                           WIDE_TIMES_PLUS(WIDEN(PART(off[k], q)), t->rate - (wide){0}, t->mean_term - (wide){0}));
            parts[q] = NARROW(terms[q]);
        }
        result[k] = JOIN(parts);
        unsure |= ((LOW_WORDS(terms) - (BORDER - NEAR)) & BEYOND_NEAR) == 0;
        lanes size = (lanes)((whole_lanes)result[k] & MAGNITUDE), of = (lanes)((whole_lanes)scaled[k] & MAGNITUDE);
        unsure |= ~(size >= of * t->of_first + t->least);
    }
    if (__builtin_expect(!any(unsure), 1)) return;
    lanes exact[2]; /* so that the others need not be in memory */
    float *values = (float *)exact;
    carry_few(x, delta, values, STEP, t, constant);
    result[0] = exact[0], result[1] = exact[1];
}

static inline __attribute__((always_inline)) void store_two(float *to, const lanes *two) {
    store(to, two[0]), store(to + LANES, two[1]);
}

static inline __attribute__((always_inline)) void carry_all(const float *x, const float *delta, float *output, size_t n,
                                                            const delta_terms *terms, int constant) {
    const delta_terms t = *terms; /* a copy, which no store to the output can change */
    lanes result[2], last[2];
    size_t i = 0, end = n - STEP;
    for (; i + STEP <= end; i += STEP) {
        carry_step(x + i, delta + i, &t, constant, result);
        store_two(output + i, result);
    }
    carry_step(x + i, delta + i, &t, constant, result); /* as in normalize_all() */
    carry_step(x + end, delta + end, &t, constant, last);
    store_two(output + i, result);
    store_two(output + end, last);
}

static void carry(const plane_deltas *d) {
    for (size_t i = 0; i < d->planes; ++i) {
        const float *x = d->x + i * d->n, *delta = d->delta + i * d->n;
        float *output = d->output + i * d->n;
        if (d->n < STEP)
            carry_few(x, delta, output, d->n, d->terms + i, d->constant);
        else if (d->constant)
            carry_all(x, delta, output, d->n, d->terms + i, 1);
        else
            carry_all(x, delta, output, d->n, d->terms + i, 0);
    }
}
