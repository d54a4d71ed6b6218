/* Batch normalization on the way back, and the step of its scales and biases (pjreddie/darknet src/batchnorm_layer.c). */
#include <string.h>

#include "batchnorm.h"

static status ready_for_backward(const layer *l, size_t batch, int train) {
    int empty = l->cached == CACHED_TRAINING && l->exchanged && !l->x_batch && !l->x_norm_batch;
    if (empty && train && !batch) return STATUS_OK;
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
static status prepare_backward(layer *l, const network_state *state) {
    status s = ready_for_backward(l, state->batch, state->train);
    if (s == STATUS_OK && state->train && l->exchanged && !state->exchange)
        s = fail(STATUS_STATE, "the last training forward was one with an exchange of statistics, and backward is not");
    if (s == STATUS_OK) s = ensure_gradients(l);
    return s == STATUS_OK && uses_rolling(l, state->train) ? keep_x_norm(l) : s; /* it is not a quotient of the rolling arrays */
}

/* delta and output: of the layer's output and of its input */
static status backward(layer *l, const float *delta, float *output, const network_state *state) {
    const batchnorm_rule *rule = &l->batchnorm_rule;
    int rolling = uses_rolling(l, state->train);
    size_t batch = state->batch;
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
    if (state->train && l->exchanged) return exchange_deltas(l, &p, state);
    batchnorm_backward(&p);
    return STATUS_OK;
}

status backward_batchnorm_layer(layer *l, const float *delta, float *input_delta, const network_state *state) {
    status s = prepare_backward(l, state);
    if (s != STATUS_OK) return s;
    size_t n = state->batch * l->outputs;
    int own = is_own(l, input_delta, n);
    if (own && ensure_array(&l->delta, n) != STATUS_OK) return STATUS_OUT_OF_MEMORY;
    size_t before = enter_float_mode(get_flush_denormals());
    s = backward(l, delta, own ? l->delta : input_delta, state);
    leave_float_mode(before);
    if (own && s == STATUS_OK) memmove(input_delta, l->delta, n * sizeof *delta);
    return s;
}

status normalize_delta(layer *l, float *delta, const network_state *state) {
    status s = prepare_backward(l, state);
    if (s != STATUS_OK) return s;
    if (l->batchnorm_rule.host_bias_gradient) bias_gradients(delta, (extent){state->batch, l->c, l->h * l->w}, l->bias_updates);
    return backward(l, delta, delta, state);
}

status backward_standalone_batchnorm(layer *l, const network_state *state) {
    status s = normalize_delta(l, l->delta, state);
    if (s == STATUS_OK && state->delta) memcpy(state->delta, l->delta, state->batch * l->outputs * sizeof *l->delta);
    return s;
}

status update_standalone_batchnorm(layer *l, const update_options *o) {
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
