/* What training adds to every layer: a delta of its output, gradients, and their step. */
#include <string.h>

#include "../internal.h"

status prepare_delta(layer *l, size_t batch, delta_start start) {
    size_t n, factors[] = {batch, l->outputs};
    if (!product(&n, factors, 2)) return fail(STATUS_OUT_OF_MEMORY, "%zu images of %zu outputs are too many", batch, l->outputs);
    int fresh = !l->delta || array_size(l->delta) < n;
    if (ensure_array(&l->delta, n) != STATUS_OK) return STATUS_OUT_OF_MEMORY;
    if (!fresh && start == DELTA_START_CLEARED) memset(l->delta, 0, n * sizeof *l->delta);
    if (!fresh && start == DELTA_START_MULTIPLIED) scal_cpu(n, 0, l->delta);
    l->delta_batch = batch;
    return STATUS_OK;
}

status ensure_all_updates(layer *l) {
    status s = l->weights ? ensure_updates(&l->weight_updates, l->weights) : STATUS_OK;
    return s == STATUS_OK && l->biases ? ensure_updates(&l->bias_updates, l->biases) : s;
}

status prepare_gradients(layer *l) {
    status s = ensure_all_updates(l);
    if (s == STATUS_OK && l->rolling_variance) s = ensure_gradients(l);
    if (s == STATUS_OK && l->batchnorm) s = prepare_gradients(l->batchnorm);
    for (size_t i = 0; s == STATUS_OK && i < l->n_inner; ++i)
        if (l->inner[i]) s = prepare_gradients(l->inner[i]);
    return s;
}

status backward_layer(layer *l, const network_state *state) {
    if (!l->backward) return fail(STATUS_UNSUPPORTED, "has no backward");
    if (!l->batch) return fail(STATUS_STATE, "backward needs a training forward before it");
    if (l->batch != state->batch || l->delta_batch != state->batch)
        return fail(STATUS_STATE, "the last forward was of %zu images, backward is of %zu and its delta of %zu", l->batch,
                    state->batch, l->delta_batch);
    size_t before = enter_float_mode(get_flush_denormals());
    status s = l->backward(l, state);
    leave_float_mode(before);
    return s;
}

status update_layer(layer *l, const update_options *options) {
    if (!l->update || l->freeze_parameters) return STATUS_OK;
    size_t before = enter_float_mode(get_flush_denormals());
    update_options o = *options;
    o.learning_rate *= l->learning_rate_scale;
    status s = l->update(l, &o);
    leave_float_mode(before);
    return s;
}

/* ---- activations ------------------------------------------------------------------------------------------------------------ */

status activate_output(layer *l, float *output, extent e, const float *biases, const network_state *state, int host) {
    const arithmetic_rule *rule = &l->layer_rule.arithmetic;
    size_t n = e.batch * e.c * e.spatial;
    if (state->cache && needs_activation_input(l->activation)) {
        if (ensure_array(&l->activation_input, n) != STATUS_OK) return STATUS_OUT_OF_MEMORY;
        if (biases) add_bias(output, biases, e);
        memcpy(l->activation_input, output, n * sizeof *output);
        activate_channels(output, e, l->activation, rule, host);
    } else if (biases)
        activate_biased(output, biases, e, l->activation, rule, host);
    else
        activate_channels(output, e, l->activation, rule, host);
    return STATUS_OK;
}

void activation_delta(layer *l, extent e) {
    gradient_channels(l->output, l->activation_input, e, l->activation, &l->layer_rule.arithmetic, l->delta);
}

status delta_of_sums(layer *l, extent e, const float *output, float *delta, const network_state *state) {
    gradient_channels(output, l->activation_input, e, l->activation, &l->layer_rule.arithmetic, delta);
    if (l->batchnorm) return normalize_delta(l->batchnorm, delta, state);
    bias_gradients(delta, e, l->bias_updates);
    return STATUS_OK;
}

/* ---- deltas ------------------------------------------------------------------------------------------------------------------ */

void add_delta(const layer *l, const network_state *state, const float *delta) {
    if (state->delta) axpy_cpu(state->batch * l->inputs, 1, delta, state->delta);
}

status copy_delta(const layer *l, const network_state *state, write_delta write) {
    if (!state->delta) return STATUS_OK;
    if (l->layer_rule.copied_delta == COPIED_DELTA_OVERWRITTEN) return write(l, state, state->delta);
    float *copied = make_array(state->batch * l->inputs);
    if (!copied) return STATUS_OUT_OF_MEMORY;
    status s = write(l, state, copied);
    if (s == STATUS_OK) add_delta(l, state, copied);
    array_release(copied);
    return s;
}

/* ---- steps ------------------------------------------------------------------------------------------------------------------ */

status ensure_updates(float **updates, const float *parameters) {
    return ensure_array(updates, array_size(parameters));
}

void move_parameters(float *parameters, float *updates, size_t n, const update_options *o, float decay) {
    float batch = (float)o->batch;
    if (decay != 0) axpy_cpu(n, -decay * batch, parameters, updates);
    axpy_cpu(n, o->learning_rate / batch, updates, parameters);
    scal_cpu(n, o->momentum, updates);
}

status update_weights(layer *l, const update_options *o) {
    status s = ensure_all_updates(l);
    if (s == STATUS_OK && l->batchnorm) s = ensure_gradients(l->batchnorm);
    if (s != STATUS_OK) return s;
    if (l->biases) move_parameters(l->biases, l->bias_updates, array_size(l->biases), o, 0);
    move_parameters(l->weights, l->weight_updates, l->nweights, o, o->decay);
    return l->batchnorm ? update_batchnorm_layer(l->batchnorm, o->batch, o->learning_rate, o->momentum, o->decay) : STATUS_OK;
}
