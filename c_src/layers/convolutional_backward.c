/* Backward of a convolution: activation, batchnorm or bias, weights, input (pjreddie/darknet src/convolutional_layer.c
 * backward_convolutional_layer; AlexeyAB's overwrites the delta before it). */
#include "../internal.h"

static status add_weight_gradients(layer *l, const network_state *state, const convolution_shape *s) {
    size_t threads = get_num_threads();
    float *own = NULL, *scratch = take_scratch(state, weight_gradients_scratch(s), threads, &own);
    if (!scratch) return STATUS_OUT_OF_MEMORY;
    weight_gradients(s, state->batch, l->groups, state->input, l->delta, l->weight_updates, scratch, threads);
    array_release(own);
    return STATUS_OK;
}

static status add_input_gradients(const layer *l, const network_state *state, const convolution_shape *s) {
    size_t threads = get_num_threads();
    float *own = NULL, *scratch = take_scratch(state, input_gradients_scratch(s), threads, &own);
    float *transposed = scratch ? make_dirty_array(l->nweights) : NULL;
    if (transposed) {
        transpose_weights(s, l->groups, l->weights, transposed);
        input_gradients(s, state->batch, l->groups, transposed, l->delta, l->layer_rule.input_delta, state->delta, scratch,
                        threads);
    }
    array_release(transposed);
    array_release(own);
    return transposed ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

static status check(const layer *l) {
    if (l->blur) return fail(STATUS_UNSUPPORTED, "has no backward with antialiasing");
    if (l->xnor) return fail(STATUS_UNSUPPORTED, "has no backward with xnor");
    return STATUS_OK;
}

status backward_convolutional_layer(layer *l, const network_state *state) {
    convolution_shape s = shape_of_group(l);
    extent e = {state->batch, l->n, s.out_h * s.out_w};
    status done = check(l);
    if (done == STATUS_OK) done = ensure_updates(&l->weight_updates, l->weights);
    if (done == STATUS_OK && l->biases) done = ensure_updates(&l->bias_updates, l->biases);
    if (done != STATUS_OK) return done;
    activation_delta(l, e);
    if (l->batchnorm)
        done = normalize_delta(l->batchnorm, l->delta, state);
    else
        bias_gradients(l->delta, e, l->bias_updates);
    if (done == STATUS_OK) done = add_weight_gradients(l, state, &s);
    if (done == STATUS_OK && state->delta) done = add_input_gradients(l, state, &s);
    return done;
}
