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
    memcpy(l->output, state->input, state->batch * l->outputs * sizeof *l->output);
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
    l->batch = l->x_batch = l->x_norm_batch = 0;
    free_layer(sized);
    return STATUS_OK;
}

/* One array of c floats for each of the given fields, where there is none yet. */
static status ensure_channels(layer *l, float **const *fields, size_t n_fields) {
    for (size_t i = 0; i < n_fields; ++i) {
        if (!*fields[i] && !(*fields[i] = make_array(l->c))) return STATUS_OUT_OF_MEMORY;
    }
    return STATUS_OK;
}

/* x, and x_norm with it, for n floats. */
static status ensure_cache(layer *l, size_t n) {
    size_t capacity = l->x && l->x_norm ? l->cache_capacity : 0;
    size_t of_x = l->x ? capacity : 0, of_x_norm = l->x_norm ? capacity : 0;
    status s = ensure_array(&l->x, &of_x, n);
    if (s == STATUS_OK) s = ensure_array(&l->x_norm, &of_x_norm, n);
    l->cache_capacity = s == STATUS_OK ? of_x : 0;
    return s;
}

static status train_forward(layer *l, float *output, extent e, const network_state *state) {
    const batchnorm_rule *rule = &l->batchnorm_rule;
    size_t n = e.batch * e.spatial;
    int kept_differs = rule->normalize_variance != rule->keep_variance;
    mean_cpu(output, e, l->mean);
    square_deviations_cpu(output, l->mean, e, l->variance);
    if (!l->freeze_statistics) {
        move_rolling(l->rolling_mean, l->mean, e.c, rule);
        if (kept_differs) {
            scale_variance(l->variance, e.c, n, rule->keep_variance, l->variance_delta);
            move_rolling(l->rolling_variance, l->variance_delta, e.c, rule);
        }
    }
    scale_variance(l->variance, e.c, n, rule->normalize_variance, l->variance);
    if (!l->freeze_statistics && !kept_differs) move_rolling(l->rolling_variance, l->variance, e.c, rule);
    if (state->cache) memcpy(l->x, output, e.batch * l->outputs * sizeof *output);
    normalize_cpu(output, l->mean, l->variance, e, rule, state->cache ? l->x_norm : NULL);
    l->x_batch = l->x_norm_batch = state->cache ? e.batch : 0;
    return STATUS_OK;
}

status normalize_output(layer *l, float *output, const network_state *state) {
    extent e = extent_of(l, state->batch);
    if (state->train && e.batch * e.spatial == 1 && l->batchnorm_rule.normalize_variance == DENOMINATOR_N_MINUS_1 &&
        !state->allow_degenerate)
        return fail(STATUS_NUMERICS, "one value in each channel has no variance over n-1 = 0");
    if (state->cache && ensure_cache(l, e.batch * l->outputs) != STATUS_OK) return STATUS_OUT_OF_MEMORY;
    if (state->train) {
        float **fields[] = {&l->mean, &l->variance, &l->variance_delta};
        if (ensure_channels(l, fields, 3) != STATUS_OK) return STATUS_OUT_OF_MEMORY;
        train_forward(l, output, e, state);
    } else {
        if (state->cache) memcpy(l->x, output, e.batch * l->outputs * sizeof *output);
        l->x_batch = state->cache ? e.batch : 0;
        normalize_cpu(output, l->rolling_mean, l->rolling_variance, e, &l->batchnorm_rule, NULL);
    }
    scale_add_bias(output, l->scales, l->biases, e);
    return STATUS_OK;
}

status forward_batchnorm_layer(layer *l, const network_state *state) {
    return forward_layer(l, state);
}

static status ready_for_backward(const layer *l, size_t batch, int train) {
    if (!l->x_norm_batch) return fail(STATUS_STATE, "backward needs a training forward before it");
    if (!l->x_batch) return fail(STATUS_STATE, "the last forward was an inference forward that kept no x");
    if (l->x_batch != batch) return fail(STATUS_STATE, "the last forward was of %zu images, delta is of %zu", l->x_batch, batch);
    if (train && l->x_norm_batch != batch)
        return fail(STATUS_STATE, "the last training forward was of %zu images, delta is of %zu", l->x_norm_batch, batch);
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
    size_t n = batch * l->outputs, capacity = l->delta ? l->delta_capacity : 0;
    float **fields[] = {&l->mean_delta, &l->variance_delta, &l->scale_updates, &l->bias_updates};
    if (ensure_channels(l, fields, 4) != STATUS_OK || ensure_array(&l->delta, &capacity, n) != STATUS_OK)
        return STATUS_OUT_OF_MEMORY;
    l->delta_capacity = capacity;
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
