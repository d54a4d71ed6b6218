/* Weights for an output, the same for every image (AlexeyAB/darknet src/representation_layer.c). */
#include <string.h>

#include "../internal.h"

static status forward_implicit_layer(layer *l, const network_state *state) {
    for (size_t b = 0; b < state->batch; ++b) memcpy(l->output + b * l->outputs, l->weights, l->outputs * sizeof *l->output);
    return STATUS_OK;
}

static status backward_implicit_layer(layer *l, const network_state *state) {
    if (ensure_updates(&l->weight_updates, l->weights) != STATUS_OK) return STATUS_OUT_OF_MEMORY;
    for (size_t b = 0; b < state->batch; ++b) axpy_cpu(l->outputs, 1, l->delta + b * l->outputs, l->weight_updates);
    return STATUS_OK;
}

status make_implicit_layer(layer **made, size_t filters, size_t atoms) {
    *made = NULL;
    layer *l = make_layer((shape){1, 1, 1}, (shape){filters, atoms, 1});
    if (!l) return STATUS_SHAPE;
    l->nweights = l->outputs;
    l->weights = make_array(l->nweights);
    if (!l->weights) {
        free_layer(l);
        return STATUS_OUT_OF_MEMORY;
    }
    l->forward = forward_implicit_layer;
    l->backward = backward_implicit_layer;
    l->update = update_weights;
    *made = l;
    return STATUS_OK;
}
