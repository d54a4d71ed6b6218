/* Batch normalization: of its own ([batchnorm], input copied to output) and in place behind a convolutional or connected layer.
 * The order of the steps is pjreddie/darknet src/batchnorm_layer.c; there the layer of its own crashes on the CPU, since x, x_norm,
 * mean_delta and variance_delta are never allocated. Here they come with the first forward that needs them. */
#include <stdint.h>
#include <string.h>

#include "../internal.h"
#include "../kernels/kernels.h"

static status normalize_input(layer *l, const float *input, float *output, const network_state *state);
static status backward_standalone(layer *l, const network_state *state);
static status update_standalone(layer *l, const update_options *o);

static status forward_standalone(layer *l, const network_state *state) {
    return normalize_input(l, state->input, l->output, state);
}

status make_batchnorm_layer(layer **made, size_t c, size_t h, size_t w, const batchnorm_rule *rule) {
    layer *l = make_layer((shape){c, h, w}, (shape){c, h, w});
    *made = l;
    if (!l) return STATUS_SHAPE;
    l->batchnorm_rule = *rule;
    l->forward = forward_standalone;
    l->backward = backward_standalone;
    l->update = update_standalone;
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

static status ensure_channels(layer *l, float **const *fields, size_t n_fields) {
    for (size_t i = 0; i < n_fields; ++i)
        if (ensure_array(fields[i], l->c) != STATUS_OK) return STATUS_OUT_OF_MEMORY;
    return STATUS_OK;
}

status check_batchnorm_layer(const layer *l, size_t n, const network_state *state) {
    int divides_by_zero = n == 1 && l->batchnorm_rule.normalize_variance == DENOMINATOR_N_MINUS_1;
    if (!state->train || !divides_by_zero || state->allow_degenerate) return STATUS_OK;
    return fail(STATUS_NUMERICS, "one value in each channel has no variance over n-1 = 0; give a larger batch");
}

static int overlap(const float *a, size_t n, const float *b, size_t m) {
    return a && b && (uintptr_t)a < (uintptr_t)(b + m) && (uintptr_t)b < (uintptr_t)(a + n);
}

/* A caller may give a view of an array that the pass writes: such an input is copied to the output first. written: two arrays of n
 * floats and two of c. */
static const float *readable(const float *input, size_t n, float *output, const float *const *written, size_t c) {
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

static status keep_x_norm(layer *l) {
    return l->x_norm_batch ? make_x_norm(l) : STATUS_OK;
}

/* Whether a forward makes x_norm as an array */
static int keeps_x_norm(const layer *l, const network_state *state) {
    return state->cache && state->train && array_users(l->mean) > 1;
}

/* Everything that can fail in a forward, before anything changes. */
static status prepare_forward(layer *l, size_t floats, const network_state *state, int with_x_norm, float **kept) {
    float **channels[] = {&l->mean, &l->variance};
    status s = check_batchnorm_layer(l, floats / l->c, state);
    if (s == STATUS_OK && state->cache && !state->train) s = keep_x_norm(l);
    if (s == STATUS_OK && state->cache) s = ensure_array(&l->x, floats);
    if (s == STATUS_OK && with_x_norm) s = ensure_array(&l->x_norm, floats);
    if (s == STATUS_OK && state->train) s = ensure_channels(l, channels, 2);
    if (s == STATUS_OK && state->train && !(*kept = make_array(l->c))) s = STATUS_OUT_OF_MEMORY;
    if (s == STATUS_OUT_OF_MEMORY) { /* one of the arrays may be new and empty */
        l->x_batch = l->x_norm_batch = 0;
        l->cached = CACHED_NOTHING;
    }
    return s;
}

static status normalize_input(layer *l, const float *input, float *output, const network_state *state) {
    size_t floats = state->batch * l->outputs;
    float *kept = NULL;
    int with_x_norm = keeps_x_norm(l, state);
    status s = prepare_forward(l, floats, state, with_x_norm, &kept);
    if (s != STATUS_OK) return s;
    float *x = state->cache ? l->x : NULL, *x_norm = with_x_norm ? l->x_norm : NULL;
    const float *written[] = {x, x_norm, l->mean, l->variance};
    batchnorm_pass p = {.batch = state->batch, .c = l->c, .spatial = l->h * l->w, .rule = &l->batchnorm_rule};
    p.scales = l->scales, p.biases = l->biases;
    p.input = readable(input, floats, output, written, l->c), p.output = output;
    p.x = x, p.x_norm = x_norm, p.kept = kept;
    p.mean = state->train ? l->mean : l->rolling_mean, p.variance = state->train ? l->variance : l->rolling_variance;
    if (state->train)
        batchnorm_train(&p);
    else
        batchnorm_infer(&p);
    if (state->train && !l->freeze_statistics) move_rolling(l, kept);
    array_release(kept);
    if (x) l->x_batch = state->batch;
    if (state->train) {
        l->x_norm_batch = x ? state->batch : 0;
        if (!x_norm) drop_x_norm(l);
    }
    l->cached = !state->cache ? CACHED_NOTHING : state->train ? CACHED_TRAINING : CACHED_INFERENCE;
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

/* Whether it lies in an array of the layer's own, of which it may be a caller's view */
static int is_own(const layer *l, const float *output, size_t n) {
    const float *own[] = {l->output,   l->x,          l->x_norm,         l->delta,           l->mean,
                          l->variance, l->mean_delta, l->variance_delta, l->scale_updates,   l->bias_updates,
                          l->scales,   l->biases,     l->rolling_mean,   l->rolling_variance};
    for (size_t i = 0; i < sizeof own / sizeof *own; ++i)
        if (overlap(output, n, own[i], array_size(own[i]))) return 1;
    return 0;
}

status forward_batchnorm_layer(layer *l, const network_state *state, float *output) {
    size_t n, factors[] = {state->batch, l->outputs};
    if (state->batch && product(&n, factors, 2) && !is_own(l, output, n)) {
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

static status ready_for_backward(const layer *l, size_t batch, int train) {
    if (l->x_batch && l->cached == CACHED_NOTHING)
        return fail(STATUS_STATE, "the last forward was one that kept no x; backward needs a training forward before it");
    if (!l->x_norm_batch) return fail(STATUS_STATE, "backward needs a training forward before it");
    if (train && l->cached == CACHED_INFERENCE)
        return fail(STATUS_STATE,
                    "the last forward was an inference forward; backward in training needs a training forward before it");
    if (l->x_batch != batch || l->x_norm_batch != batch)
        return fail(STATUS_STATE, "the last forward was of %zu images and the last training forward of %zu, delta is of %zu",
                    l->x_batch, l->x_norm_batch, batch);
    return STATUS_OK;
}

status ensure_gradients(layer *l) {
    float **fields[] = {&l->mean_delta, &l->variance_delta, &l->scale_updates, &l->bias_updates};
    return ensure_channels(l, fields, 4);
}

/* Whether a backward takes the rolling arrays for mean and variance */
static int uses_rolling(const layer *l, int train) {
    return !train && l->batchnorm_rule.eval_statistics != STATISTICS_BATCH;
}

/* Everything that can fail in a backward, before anything changes. */
static status prepare_backward(layer *l, size_t batch, int train) {
    status s = ready_for_backward(l, batch, train);
    if (s == STATUS_OK) s = ensure_gradients(l);
    return s == STATUS_OK && uses_rolling(l, train) ? keep_x_norm(l) : s; /* it is not a quotient of the rolling arrays */
}

/* delta and output: of the layer's output and of its input */
static void backward(layer *l, const float *delta, float *output, size_t batch, int train) {
    const batchnorm_rule *rule = &l->batchnorm_rule;
    int rolling = uses_rolling(l, train);
    const float *updates[] = {NULL, NULL, l->scale_updates, l->bias_updates},
                *deltas[] = {NULL, NULL, l->mean_delta, l->variance_delta};
    if (rule->eval_statistics == STATISTICS_ROLLING_COPIED && rolling) copy_rolling(l);
    size_t n = batch * l->outputs;
    delta = readable(readable(delta, n, output, updates, l->c), n, output, deltas, l->c);
    batchnorm_pass p = {.batch = batch, .c = l->c, .spatial = l->h * l->w, .rule = rule, .scales = l->scales};
    p.input = delta, p.output = output, p.x = l->x, p.x_norm = l->x_norm;
    p.mean = rolling ? l->rolling_mean : l->mean, p.variance = rolling ? l->rolling_variance : l->variance;
    p.scale_updates = l->scale_updates, p.bias_updates = rule->bias_gradient ? l->bias_updates : NULL;
    p.mean_delta = l->mean_delta, p.variance_delta = l->variance_delta;
    p.constant = rolling && rule->eval_statistics == STATISTICS_CONSTANT;
    batchnorm_backward(&p);
}

status backward_batchnorm_layer(layer *l, const float *delta, float *input_delta, size_t batch, int train) {
    status s = prepare_backward(l, batch, train);
    if (s != STATUS_OK) return s;
    size_t n = batch * l->outputs;
    int own = is_own(l, input_delta, n);
    if (own && ensure_array(&l->delta, n) != STATUS_OK) return STATUS_OUT_OF_MEMORY;
    size_t before = enter_float_mode(get_flush_denormals());
    backward(l, delta, own ? l->delta : input_delta, batch, train);
    leave_float_mode(before);
    if (own) memmove(input_delta, l->delta, n * sizeof *delta);
    return STATUS_OK;
}

status normalize_delta(layer *l, float *delta, const network_state *state) {
    status s = prepare_backward(l, state->batch, state->train);
    if (s != STATUS_OK) return s;
    if (l->batchnorm_rule.host_bias_gradient) bias_gradients(delta, (extent){state->batch, l->c, l->h * l->w}, l->bias_updates);
    backward(l, delta, delta, state->batch, state->train);
    return STATUS_OK;
}

/* From the layer's delta into that of the layer before, which is overwritten: the forks' copy. */
static status backward_standalone(layer *l, const network_state *state) {
    status s = normalize_delta(l, l->delta, state);
    if (s == STATUS_OK && state->delta) memcpy(state->delta, l->delta, state->batch * l->outputs * sizeof *l->delta);
    return s;
}

static status update_standalone(layer *l, const update_options *o) {
    if (!l->batchnorm_rule.trains_standalone) return STATUS_OK;
    status s = ensure_gradients(l);
    return s == STATUS_OK ? update_batchnorm_layer(l, o->batch, o->learning_rate, o->momentum, o->decay) : s;
}

/* parameter += learning_rate/batch * updates; updates *= momentum (AlexeyAB/darknet src/batchnorm_layer.c; no decay) */
status update_batchnorm_layer(layer *l, size_t batch, float learning_rate, float momentum, float decay) {
    (void)decay;
    if (!l->scale_updates) return fail(STATUS_STATE, "update needs a backward before it");
    if (l->freeze_parameters) return STATUS_OK;
    size_t before = enter_float_mode(get_flush_denormals());
    float rate = learning_rate / (float)batch;
    axpy_cpu(l->c, rate, l->bias_updates, l->biases);
    scal_cpu(l->c, momentum, l->bias_updates);
    axpy_cpu(l->c, rate, l->scale_updates, l->scales);
    scal_cpu(l->c, momentum, l->scale_updates);
    leave_float_mode(before);
    return STATUS_OK;
}
