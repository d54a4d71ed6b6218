/* Matrix product, then batchnorm or bias, then activation (pjreddie/darknet src/connected_layer.c forward_connected_layer). */
#include "../internal.h"
#include "../kernels/kernels.h"

static status forward_connected_layer(layer *l, const network_state *state) {
    extent e = {state->batch, l->outputs, 1};
    multiply_transposed(state->input, l->weights, state->batch, l->inputs, l->outputs, l->output);
    if (!l->batchnorm) {
        activate_biased(l->output, l->biases, e, l->activation, &l->layer_rule.arithmetic, 0);
        return STATUS_OK;
    }
    status done = normalize_output(l->batchnorm, l->output, state);
    if (done == STATUS_OK) activate_channels(l->output, e, l->activation, &l->layer_rule.arithmetic, 0);
    return done;
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
