/* Backward of a convolution: blur, activation, batchnorm or bias, weights, input (pjreddie/darknet src/convolutional_layer.c
 * backward_convolutional_layer; AlexeyAB's overwrites the delta before it). */
#include <string.h>

#include "../internal.h"
#include "convolution_shape.h"

static status add_weight_gradients(layer *l, const network_state *state, const convolution_shape *s, const float *delta) {
    size_t threads = get_num_threads();
    float *own = NULL, *scratch = take_scratch(state, weight_gradients_scratch(s), threads, &own);
    if (!scratch) return STATUS_OUT_OF_MEMORY;
    weight_gradients(s, state->batch, l->groups, state->input, delta, l->weight_updates, scratch, threads);
    array_release(own);
    return STATUS_OK;
}

/* From a delta of the output to one of the input */
static status add_input_gradients(const layer *l, const network_state *state, const convolution_shape *s, const float *delta,
                                  float *into) {
    size_t threads = get_num_threads();
    float *own = NULL, *scratch = take_scratch(state, input_gradients_scratch(s), threads, &own);
    float *transposed = scratch ? make_dirty_array(l->nweights) : NULL;
    if (transposed) {
        transpose_weights(s, l->groups, l->weights, transposed);
        input_gradients(s, state->batch, l->groups, transposed, delta, l->layer_rule.input_delta, into, scratch, threads);
    }
    array_release(transposed);
    array_release(own);
    return transposed ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

status delta_before_blur(const layer *l, const network_state *state, float **sharp) {
    const layer *blur = l->blur;
    size_t blurred = state->batch * l->outputs;
    if (array_size(blur->x) < state->batch * blur->inputs) return fail(STATUS_STATE, "backward needs a training forward before it");
    *sharp = make_array(state->batch * blur->inputs);
    if (!*sharp) return STATUS_OUT_OF_MEMORY;
    convolution_shape s = shape_of_group(blur);
    if (l->layer_rule.gradient == LAYER_GRADIENT_EXACT) return add_input_gradients(blur, state, &s, l->delta, *sharp);
    memcpy(*sharp, l->delta, blurred * sizeof **sharp);
    memcpy(blur->x, l->output, blurred * sizeof *blur->x);
    return STATUS_OK;
}

/* delta: of the convolution's output before a blur; it is changed */
static status backward_sharp(layer *l, const network_state *state, const float *output, float *delta) {
    convolution_shape s = shape_of_group(l);
    extent e = {state->batch, l->n, s.out_h * s.out_w};
    status done = delta_of_sums(l, e, output, delta, state);
    if (done == STATUS_OK) done = add_weight_gradients(l, state, &s, delta);
    if (done == STATUS_OK && state->delta) done = add_input_gradients(l, state, &s, delta, state->delta);
    return done;
}

status backward_convolutional_layer(layer *l, const network_state *state) {
    if (l->xnor) return fail(STATUS_UNSUPPORTED, "has no backward with xnor");
    status done = ensure_all_updates(l);
    if (done != STATUS_OK || !l->blur) return done == STATUS_OK ? backward_sharp(l, state, l->output, l->delta) : done;
    float *sharp = NULL;
    done = delta_before_blur(l, state, &sharp);
    if (done == STATUS_OK) done = backward_sharp(l, state, l->blur->x, sharp);
    array_release(sharp);
    return done;
}
