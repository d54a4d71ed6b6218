/* Values that training leaves out (pjreddie/darknet src/dropout_layer.c). The layer passes its input on and changes it in place. */
#include <stdint.h>
#include <string.h>

#include "../internal.h"

static float *writable(const float *input) {
    return (float *)(uintptr_t)input;
}

static void drop(const layer *l, size_t n, float *x) {
    for (size_t i = 0; i < n; ++i) x[i] = l->rand[i] < l->probability ? 0 : x[i] * l->scale;
}

status prepare_dropout(layer *l, size_t batch) {
    size_t n, factors[] = {batch, l->inputs};
    if (!product(&n, factors, 2)) return fail(STATUS_OUT_OF_MEMORY, "%zu images of %zu inputs are too many", batch, l->inputs);
    return ensure_array(&l->rand, n);
}

/* The output keeps the input as it was. */
static status forward_dropout_layer(layer *l, const network_state *state) {
    size_t n = state->batch * l->inputs;
    if (array_size(l->rand) < n) return fail(STATUS_STATE, "a dropout needs its random numbers");
    memcpy(l->output, state->input, n * sizeof *l->output);
    drop(l, n, writable(state->input));
    return STATUS_OK;
}

/* Exact: the layer before finds its output as it made it. */
static status backward_dropout_layer(layer *l, const network_state *state) {
    size_t n = state->batch * l->inputs;
    if (l->layer_rule.gradient == LAYER_GRADIENT_EXACT) memcpy(writable(state->input), l->output, n * sizeof *l->output);
    if (state->delta) drop(l, n, state->delta);
    return STATUS_OK;
}

status make_dropout_layer(layer **made, size_t c, size_t h, size_t w, float probability, const layer_rule *rule) {
    *made = NULL;
    if (!(probability >= 0 && probability <= 1))
        return fail(STATUS_SHAPE, "a dropout needs a probability from 0 to 1, got %g", (double)probability);
    layer *l = *made = make_layer((shape){c, h, w}, (shape){c, h, w});
    if (!l) return STATUS_SHAPE;
    l->probability = probability;
    l->scale = (float)(1. / (1. - (double)probability));
    l->layer_rule = *rule;
    l->forward = forward_dropout_layer;
    l->backward = backward_dropout_layer;
    return STATUS_OK;
}
