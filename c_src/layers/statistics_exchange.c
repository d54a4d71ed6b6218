/* A batchnorm whose statistics are not, or not only, those of its own batch: see statistics_exchange in the header. */
#include "batchnorm.h"

#include "../kernels/batchnorm_root.h"

int exchanges(const network_state *state) {
    return state->exchange && (state->train || state->exchange->in_inference);
}

static status exchange(const statistics_exchange *e, exchanged what, double *values, size_t n) {
    if (e->exchange(e->handle, what, values, n) == STATUS_OK) return STATUS_OK;
    return fail(STATUS_EXCHANGE, "the exchange of its statistics failed");
}

/* n doubles, which array_release() frees */
static double *make_doubles(size_t n) {
    return (double *)(void *)make_dirty_array(n * (sizeof(double) / sizeof(float)));
}

static void release_doubles(double *values) {
    array_release((float *)(void *)values);
}

/* The variance over n or n-1 */
static float variance_of(double squares, double n, denominator d) {
    return (float)(squares / (d == DENOMINATOR_N ? n : n - 1));
}

/* Whether a variance of n values has no divisor */
static status check_count(const layer *l, double n, const network_state *state) {
    if (n == 0) return fail(STATUS_NUMERICS, "no process has a value to normalize; give one of them a batch");
    if (!lacks_variance(l, (size_t)n, state)) return STATUS_OK;
    return fail(STATUS_NUMERICS, "one value in each channel of all processes has no variance over n-1 = 0; give larger batches");
}

status exchange_moments(layer *l, const batchnorm_pass *p, const network_state *state, statistics_of_all *all) {
    all->count = 0;
    if (!exchanges(state)) return STATUS_OK;
    double *values = make_doubles(1 + 2 * p->c);
    if (!values) return STATUS_OUT_OF_MEMORY;
    batchnorm_moments(p, values);
    status s = exchange(state->exchange, EXCHANGED_MOMENTS, values, 1 + 2 * p->c);
    if (s == STATUS_OK && state->exchange->normalizes) {
        s = check_count(l, values[0], state);
        all->count = s == STATUS_OK ? (size_t)values[0] : 0;
    }
    for (size_t f = 0; all->count && f < p->c; ++f) {
        all->mean[f] = (float)values[1 + f];
        all->variance[f] = variance_of(values[1 + p->c + f], values[0], l->batchnorm_rule.normalize_variance);
        all->kept[f] = variance_of(values[1 + p->c + f], values[0], l->batchnorm_rule.keep_variance);
    }
    release_doubles(values);
    return s;
}

/* sums: of delta and of delta * x_norm */
static void add_updates(const batchnorm_pass *p, const double *sums) {
    for (size_t f = 0; f < p->c; ++f) {
        p->scale_updates[f] += (float)sums[p->c + f];
        if (p->bias_updates) p->bias_updates[f] += (float)sums[f];
    }
}

/* Sums of delta * (x - mean) become those of delta * x_norm. */
static void divide_by_root(const batchnorm_pass *p, double *sums) {
    for (size_t f = 0; f < p->c; ++f) sums[f] /= batchnorm_root(p->variance[f], &p->rule->forward, p->rule->intermediate);
}

status exchange_deltas(const layer *l, const batchnorm_pass *pass, const network_state *state) {
    batchnorm_pass p = *pass;
    double *sums = make_doubles(4 * p.c);
    if (!sums) return STATUS_OUT_OF_MEMORY;
    double *own = sums + 2 * p.c;
    batchnorm_delta_sums(&p, sums);
    for (size_t f = 0; f < p.c; ++f) own[f] = sums[f];
    if (!state->exchange->sums_parameters) batchnorm_scale_sums(&p, own + p.c);
    status s = exchange(state->exchange, EXCHANGED_DELTA_SUMS, sums, 2 * p.c);
    if (s == STATUS_OK) {
        p.count = l->exchanged;
        for (size_t f = 0; f < p.c; ++f) batchnorm_take_sums(&p, f, sums[f], sums[p.c + f]);
        if (state->exchange->sums_parameters) divide_by_root(&p, sums + p.c);
        add_updates(&p, state->exchange->sums_parameters ? sums : own);
        batchnorm_carry(&p);
    }
    release_doubles(sums);
    return s;
}
