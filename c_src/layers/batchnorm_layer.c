/* Batch normalization: of its own ([batchnorm], input copied to output) and in place behind a convolutional or connected layer.
 * The order of the steps is pjreddie/darknet src/batchnorm_layer.c; there the layer of its own crashes on the CPU, since x, x_norm,
 * mean_delta and variance_delta are never allocated. Here they come with the first forward that needs them. */
#include <stdint.h>
#include <string.h>

#include "batchnorm.h"

static status normalize_input(layer *l, const float *input, float *output, const network_state *state);

static status forward_standalone(layer *l, const network_state *state) {
    return normalize_input(l, state->input, l->output, state);
}

status make_batchnorm_layer(layer **made, size_t c, size_t h, size_t w, const batchnorm_rule *rule) {
    layer *l = make_layer((shape){c, h, w}, (shape){c, h, w});
    *made = l;
    if (!l) return STATUS_SHAPE;
    l->batchnorm_rule = *rule;
    l->forward = forward_standalone;
    l->backward = backward_standalone_batchnorm;
    l->update = update_standalone_batchnorm;
    float **parameters[] = {&l->scales, &l->biases, &l->rolling_mean, &l->rolling_variance};
    for (size_t i = 0; i < 4; ++i) {
        *parameters[i] = make_array(c);
        if (*parameters[i]) continue;
        free_layer(l);
        *made = NULL;
        return STATUS_OUT_OF_MEMORY;
    }
    return reset_batchnorm_layer(l, 1, 1);
}

void drop_x_norm(layer *l) {
    array_release(l->x_norm);
    l->x_norm = NULL;
}

status resize_batchnorm_layer(layer *l, size_t h, size_t w) {
    layer *sized = make_layer((shape){l->c, h, w}, (shape){l->c, h, w});
    if (!sized) return STATUS_SHAPE;
    l->h = l->out_h = h, l->w = l->out_w = w;
    l->inputs = l->outputs = sized->outputs;
    l->batch = l->x_batch = l->x_norm_batch = l->delta_batch = 0;
    l->cached = CACHED_NOTHING;
    drop_x_norm(l);
    free_layer(sized);
    return STATUS_OK;
}

status ensure_channels(layer *l, float **const *fields, size_t n_fields) {
    for (size_t i = 0; i < n_fields; ++i)
        if (ensure_array(fields[i], l->c) != STATUS_OK) return STATUS_OUT_OF_MEMORY;
    return STATUS_OK;
}

int lacks_variance(const layer *l, size_t n, const network_state *state) {
    const batchnorm_rule *rule = &l->batchnorm_rule;
    int keeps = rule->keep_variance == DENOMINATOR_N_MINUS_1 && state->train && !l->freeze_statistics;
    return n == 1 && (keeps || rule->normalize_variance == DENOMINATOR_N_MINUS_1) && !state->allow_degenerate;
}

status check_batchnorm_layer(const layer *l, size_t n, const network_state *state) {
    if (!state->train || !lacks_variance(l, n, state)) return STATUS_OK;
    return fail(STATUS_NUMERICS, "one value in each channel has no variance over n-1 = 0; give a larger batch");
}

static int overlap(const float *a, size_t n, const float *b, size_t m) {
    return a && b && (uintptr_t)a < (uintptr_t)(b + m) && (uintptr_t)b < (uintptr_t)(a + n);
}

const float *readable(const float *input, size_t n, float *output, const float *const *written, size_t c) {
    int disturbed = input != output && overlap(input, n, output, n);
    for (size_t i = 0; i < 4; ++i) disturbed |= overlap(input, n, written[i], i < 2 ? n : c);
    if (disturbed) memmove(output, input, n * sizeof *output);
    return disturbed ? output : input;
}

/* x_norm is the quotient of x, mean and variance, and made of them where it is needed: as an array only for those who ask for it,
 * where x changes and x_norm does not, and where mean and variance are another layer's too, which changes them. */
status make_x_norm(layer *l) {
    if (l->x_norm) return STATUS_OK;
    if (!l->x_norm_batch) return fail(STATUS_STATE, "there is no x_norm; it comes with a training forward that keeps x");
    l->x_norm = make_dirty_array(l->x_norm_batch * l->outputs);
    if (!l->x_norm) return STATUS_OUT_OF_MEMORY;
    batchnorm_pass p = {.batch = l->x_norm_batch, .c = l->c, .spatial = l->h * l->w, .rule = &l->batchnorm_rule};
    p.input = l->x, p.x_norm = l->x_norm, p.mean = l->mean, p.variance = l->variance, p.scales = l->scales, p.biases = l->biases;
    size_t before = enter_float_mode(get_flush_denormals());
    batchnorm_infer(&p);
    leave_float_mode(before);
    return STATUS_OK;
}

status keep_x_norm(layer *l) {
    return l->x_norm_batch ? make_x_norm(l) : STATUS_OK;
}

/* Whether a forward makes x_norm as an array */
static int keeps_x_norm(const layer *l, const network_state *state) {
    return state->cache && state->train && array_users(l->mean) > 1;
}

static void forget_cached(layer *l) {
    l->x_batch = l->x_norm_batch = 0;
    l->cached = CACHED_NOTHING;
}

/* Everything that can fail in a forward, but for an exchange, before anything changes. kept: three arrays of c */
static status prepare_forward(layer *l, size_t floats, const network_state *state, int with_x_norm, float **kept) {
    float **channels[] = {&l->mean, &l->variance};
    status s = exchanges(state) && state->exchange->normalizes ? STATUS_OK : check_batchnorm_layer(l, floats / l->c, state);
    if (s == STATUS_OK && state->cache && !state->train) s = keep_x_norm(l);
    if (s == STATUS_OK && state->cache) s = ensure_array(&l->x, floats);
    if (s == STATUS_OK && with_x_norm) s = ensure_array(&l->x_norm, floats);
    if (s == STATUS_OK && state->train) s = ensure_channels(l, channels, 2);
    if (s == STATUS_OK && (state->train || exchanges(state)) && !(*kept = make_array(3 * l->c))) s = STATUS_OUT_OF_MEMORY;
    if (s == STATUS_OUT_OF_MEMORY) forget_cached(l); /* one of the arrays may be new and empty */
    return s;
}

/* In training they become the layer's. */
static void take_statistics(layer *l, const statistics_of_all *all, int train, batchnorm_pass *p) {
    if (train) {
        memcpy(l->mean, all->mean, l->c * sizeof *l->mean);
        memcpy(l->variance, all->variance, l->c * sizeof *l->variance);
    } else {
        p->mean = all->mean, p->variance = all->variance;
    }
}

/* What a forward left for a backward */
static void note_forward(layer *l, const network_state *state, const float *x_norm, size_t exchanged) {
    if (state->cache) l->x_batch = state->batch;
    if (state->train) {
        l->x_norm_batch = state->cache ? state->batch : 0;
        l->exchanged = exchanged;
        if (!x_norm) drop_x_norm(l);
    }
    l->cached = !state->cache ? CACHED_NOTHING : state->train ? CACHED_TRAINING : CACHED_INFERENCE;
}

static status normalize_input(layer *l, const float *input, float *output, const network_state *state) {
    size_t floats = state->batch * l->outputs;
    float *kept = NULL;
    int with_x_norm = keeps_x_norm(l, state);
    status s = prepare_forward(l, floats, state, with_x_norm, &kept);
    batchnorm_pass p = {.batch = state->batch, .c = l->c, .spatial = l->h * l->w, .rule = &l->batchnorm_rule, .input = input};
    statistics_of_all all = {0};
    if (s == STATUS_OK && kept) all.kept = kept, all.mean = kept + l->c, all.variance = kept + 2 * l->c;
    if (s == STATUS_OK) s = exchange_moments(l, &p, state, &all);
    if (s != STATUS_OK) {
        array_release(kept);
        if (exchanges(state)) forget_cached(l);
        return s;
    }
    float *x = state->cache ? l->x : NULL, *x_norm = with_x_norm ? l->x_norm : NULL;
    const float *written[] = {x, x_norm, l->mean, l->variance};
    p.scales = l->scales, p.biases = l->biases;
    p.input = readable(input, floats, output, written, l->c), p.output = output;
    p.x = x, p.x_norm = x_norm, p.kept = kept;
    p.mean = state->train ? l->mean : l->rolling_mean, p.variance = state->train ? l->variance : l->rolling_variance;
    if (all.count) take_statistics(l, &all, state->train, &p);
    if (state->train && !all.count)
        batchnorm_train(&p);
    else
        batchnorm_infer(&p);
    if (state->train && !l->freeze_statistics) move_rolling(l, kept);
    array_release(kept);
    note_forward(l, state, x_norm, all.count);
    return STATUS_OK;
}

batchnorm_pass inference_of(layer *l) {
    l->cached = CACHED_NOTHING;
    return (batchnorm_pass){.c = l->c,
                            .rule = &l->batchnorm_rule,
                            .scales = l->scales,
                            .biases = l->biases,
                            .mean = l->rolling_mean,
                            .variance = l->rolling_variance};
}

status normalize_output(layer *l, float *output, const network_state *state) {
    return normalize_input(l, output, output, state);
}

int is_own(const layer *l, const float *output, size_t n) {
    const float *own[] = {l->output,   l->x,          l->x_norm,         l->delta,           l->mean,
                          l->variance, l->mean_delta, l->variance_delta, l->scale_updates,   l->bias_updates,
                          l->scales,   l->biases,     l->rolling_mean,   l->rolling_variance};
    for (size_t i = 0; i < sizeof own / sizeof *own; ++i)
        if (overlap(output, n, own[i], array_size(own[i]))) return 1;
    return 0;
}

status forward_batchnorm_layer(layer *l, const network_state *state, float *output) {
    size_t n, factors[] = {state->batch, l->outputs};
    int joins = !state->batch && state->train && exchanges(state) && state->exchange->normalizes;
    if ((state->batch || joins) && product(&n, factors, 2) && !is_own(l, output, n)) {
        l->batch = state->batch;
        size_t before = enter_float_mode(get_flush_denormals());
        status done = normalize_input(l, state->input, output, state);
        leave_float_mode(before);
        return done;
    }
    status s = forward_layer(l, state);
    if (s == STATUS_OK) memcpy(output, l->output, state->batch * l->outputs * sizeof *output);
    return s;
}
