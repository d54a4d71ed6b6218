/* Matrix product, then batchnorm or bias, then activation (pjreddie/darknet src/connected_layer.c). */
#include "../internal.h"
#include "../kernels/kernels.h"

static status forward_connected_layer(layer *l, const network_state *state) {
    extent e = {state->batch, l->outputs, 1};
    multiply_transposed(state->input, l->weights, state->batch, l->inputs, l->outputs, l->output);
    status done = l->batchnorm ? normalize_output(l->batchnorm, l->output, state) : STATUS_OK;
    return done == STATUS_OK ? activate_output(l, l->output, e, l->batchnorm ? NULL : l->biases, state, 0) : done;
}

static status backward_connected_layer(layer *l, const network_state *state) {
    extent e = {state->batch, l->outputs, 1};
    status done = ensure_all_updates(l);
    if (done == STATUS_OK && l->layer_rule.connected_delta == CONNECTED_DELTA_CONSTRAINED)
        constrain_cpu(state->batch * l->outputs, 1, l->delta);
    if (done == STATUS_OK) done = delta_of_sums(l, e, l->output, l->delta, state);
    if (done != STATUS_OK) return done;
    connected_weight_gradients(l->delta, state->input, state->batch, l->inputs, l->outputs, l->weight_updates);
    if (state->delta) connected_input_gradients(l->delta, l->weights, state->batch, l->inputs, l->outputs, state->delta);
    return STATUS_OK;
}

status make_connected_layer(layer **made, size_t inputs, size_t outputs, activation a, int batch_normalize,
                            const batchnorm_rule *bn, const layer_rule *rule) {
    size_t factors[] = {inputs, outputs};
    layer *l = make_layer((shape){inputs, 1, 1}, (shape){outputs, 1, 1});
    *made = NULL;
    if (!l) return STATUS_SHAPE;
    l->activation = a;
    l->layer_rule = *rule;
    l->forward = forward_connected_layer;
    l->backward = backward_connected_layer;
    l->update = update_weights;
    status s = STATUS_OK;
    if (!product(&l->nweights, factors, 2))
        s = fail(STATUS_SHAPE, "%zu inputs times %zu outputs are too many weights", inputs, outputs);
    else if (!(l->weights = make_array(l->nweights)))
        s = STATUS_OUT_OF_MEMORY;
    else if (batch_normalize)
        s = make_batchnorm_layer(&l->batchnorm, outputs, 1, 1, bn);
    else if (!(l->biases = make_array(outputs)))
        s = STATUS_OUT_OF_MEMORY;
    if (s != STATUS_OK)
        free_layer(l);
    else
        *made = l;
    return s;
}
