/* Batch normalization: of its own ([batchnorm], input copied to output) and in place behind a convolutional or connected layer.
 * The order of the steps is pjreddie/darknet src/batchnorm_layer.c; there the layer of its own crashes on the CPU, since x, x_norm,
 * mean_delta and variance_delta are never allocated. Here they come with the first forward that needs them. */
#include <string.h>

#include "../internal.h"
#include "../kernels/kernels.h"

static extent extent_of(const layer *l, size_t batch) {
    return (extent){batch, l->c, l->h * l->w};
}

static status forward_standalone(layer *l, const network_state *state) {
    /* memmove: the input may be a view of the last output */
    memmove(l->output, state->input, state->batch * l->outputs * sizeof *l->output);
    return normalize_output(l, l->output, state);
}

status make_batchnorm_layer(layer **made, size_t c, size_t h, size_t w, const batchnorm_rule *rule) {
    layer *l = make_layer((shape){c, h, w}, (shape){c, h, w});
    *made = l;
    if (!l) return STATUS_SHAPE;
    l->batchnorm_rule = *rule;
    l->forward = forward_standalone;
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

status reset_batchnorm_layer(layer *l, int statistics, int parameters) {
    for (size_t f = 0; f < l->c; ++f) {
        if (parameters) l->scales[f] = 1, l->biases[f] = 0;
        if (statistics) l->rolling_mean[f] = l->rolling_variance[f] = 0;
    }
    return STATUS_OK;
}

status resize_batchnorm_layer(layer *l, size_t h, size_t w) {
    layer *sized = make_layer((shape){l->c, h, w}, (shape){l->c, h, w});
    if (!sized) return STATUS_SHAPE;
    l->h = l->out_h = h, l->w = l->out_w = w;
    l->inputs = l->outputs = sized->outputs;
    l->batch = l->x_batch = l->x_norm_batch = l->delta_batch = 0;
    l->cached = CACHED_NOTHING;
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

/* The rolling variance takes up the rule's own variance, of which kept (c) is the place. */
static void train_forward(layer *l, float *output, extent e, float *x_norm, float *kept) {
    const batchnorm_rule *rule = &l->batchnorm_rule;
    size_t n = e.batch * e.spatial;
    mean_cpu(output, e, l->mean);
    square_deviations_cpu(output, l->mean, e, l->variance);
    if (!l->freeze_statistics) {
        scale_variance(l->variance, e.c, n, rule->keep_variance, kept);
        move_rolling(l->rolling_mean, l->mean, e.c, rule);
        move_rolling(l->rolling_variance, kept, e.c, rule);
    }
    scale_variance(l->variance, e.c, n, rule->normalize_variance, l->variance);
    normalize_cpu(output, l->mean, l->variance, e, rule, x_norm);
}

/* Everything that can fail in a forward, before anything changes. */
static status prepare_forward(layer *l, size_t floats, const network_state *state, float **kept) {
    float **channels[] = {&l->mean, &l->variance};
    status s = check_batchnorm_layer(l, floats / l->c, state);
    if (s == STATUS_OK && state->cache) s = ensure_array(&l->x, floats);
    if (s == STATUS_OK && state->cache && state->train) s = ensure_array(&l->x_norm, floats);
    if (s == STATUS_OK && state->train) s = ensure_channels(l, channels, 2);
    if (s == STATUS_OK && state->train && !(*kept = make_array(l->c))) s = STATUS_OUT_OF_MEMORY;
    if (s == STATUS_OUT_OF_MEMORY) { /* one of the arrays may be new and empty */
        l->x_batch = l->x_norm_batch = 0;
        l->cached = CACHED_NOTHING;
    }
    return s;
}

status normalize_output(layer *l, float *output, const network_state *state) {
    extent e = extent_of(l, state->batch);
    size_t floats = e.batch * l->outputs;
    float *kept = NULL;
    status s = prepare_forward(l, floats, state, &kept);
    if (s != STATUS_OK) return s;
    if (state->cache) {
        memcpy(l->x, output, floats * sizeof *output);
        l->x_batch = e.batch;
    }
    l->cached = !state->cache ? CACHED_NOTHING : state->train ? CACHED_TRAINING : CACHED_INFERENCE;
    if (state->train) {
        train_forward(l, output, e, state->cache ? l->x_norm : NULL, kept);
        if (state->cache) l->x_norm_batch = e.batch;
    } else {
        normalize_cpu(output, l->rolling_mean, l->rolling_variance, e, &l->batchnorm_rule, NULL);
    }
    array_release(kept);
    scale_add_bias(output, l->scales, l->biases, e);
    return STATUS_OK;
}

status forward_batchnorm_layer(layer *l, const network_state *state) {
    return forward_layer(l, state);
}

static status ready_for_backward(const layer *l, size_t batch, int train) {
    if (!l->x_norm_batch) return fail(STATUS_STATE, "backward needs a training forward before it");
    if (l->cached == CACHED_NOTHING)
        return fail(STATUS_STATE, "the last forward was one that kept no x; backward needs a training forward before it");
    if (train && l->cached == CACHED_INFERENCE)
        return fail(STATUS_STATE,
                    "the last forward was an inference forward; backward in training needs a training forward before it");
    if (l->x_batch != batch || l->x_norm_batch != batch)
        return fail(STATUS_STATE, "the last forward was of %zu images and the last training forward of %zu, delta is of %zu",
                    l->x_batch, l->x_norm_batch, batch);
    return STATUS_OK;
}

static void backward(layer *l, extent e, int train) {
    const batchnorm_rule *rule = &l->batchnorm_rule;
    int rolling = !train && rule->eval_statistics != STATISTICS_BATCH;
    const float *mean = rolling ? l->rolling_mean : l->mean, *variance = rolling ? l->rolling_variance : l->variance;
    if (rule->bias_gradient) backward_bias(l->bias_updates, l->delta, e);
    backward_scale_cpu(l->x_norm, l->delta, e, l->scale_updates);
    scale_bias(l->delta, l->scales, e);
    if (rolling && rule->eval_statistics == STATISTICS_CONSTANT) {
        direct_delta_cpu(variance, e, rule, l->delta);
        return;
    }
    mean_delta_cpu(l->delta, variance, e, rule, l->mean_delta);
    variance_delta_cpu(l->x, l->delta, mean, variance, e, rule, l->variance_delta);
    normalize_delta_cpu(l->x, mean, variance, l->mean_delta, l->variance_delta, e, rule, l->delta);
}

status backward_batchnorm_layer(layer *l, const float *delta, float *input_delta, size_t batch, int train) {
    status s = ready_for_backward(l, batch, train);
    if (s != STATUS_OK) return s;
    size_t n = batch * l->outputs;
    float **fields[] = {&l->mean_delta, &l->variance_delta, &l->scale_updates, &l->bias_updates};
    if (ensure_channels(l, fields, 4) != STATUS_OK || ensure_array(&l->delta, n) != STATUS_OK) return STATUS_OUT_OF_MEMORY;
    l->delta_batch = batch;
    memcpy(l->delta, delta, n * sizeof *delta);
    backward(l, extent_of(l, batch), train);
    if (input_delta) memcpy(input_delta, l->delta, n * sizeof *delta);
    return STATUS_OK;
}

/* parameter += learning_rate/batch * updates; updates *= momentum (AlexeyAB/darknet src/batchnorm_layer.c; no decay) */
status update_batchnorm_layer(layer *l, size_t batch, float learning_rate, float momentum, float decay) {
    (void)decay;
    if (!l->scale_updates) return fail(STATUS_STATE, "update needs a backward before it");
    if (l->freeze_parameters) return STATUS_OK;
    float rate = learning_rate / (float)batch;
    axpy_cpu(l->c, rate, l->bias_updates, l->biases);
    scal_cpu(l->c, momentum, l->bias_updates);
    axpy_cpu(l->c, rate, l->scale_updates, l->scales);
    scal_cpu(l->c, momentum, l->scale_updates);
    return STATUS_OK;
}
