/* [cost] (src/cost_layer.c of all forks): how far the layer before is from a truth. Its output holds each value's error. What the
 * options ratio=, noobj= and thresh= ask for, and the types seg and wgan, only a fork's GPU does. */
#include "../internal.h"
#include "../kernels/losses.h"

static status forward_cost_layer(layer *l, const network_state *state) {
    if (!has_truth(l, state)) return STATUS_OK;
    const size_t n = state->batch * l->inputs;
    status s = prepare_delta(l, state->batch, DELTA_START_KEPT);
    if (s != STATUS_OK) return s;
    l->cost = cost_cpu(state->input, state->truth, n, l->cost_kind, l->layer_rule.losses.smooth_sign, l->delta, l->output);
    /* As in the forks the layer before is overwritten, whose derivative is then taken of that. */
    if (l->cost_kind == COST_MASKED && l->masks_input) mask_cpu((float *)state->input, state->truth, n);
    return STATUS_OK;
}

static status backward_cost_layer(layer *l, const network_state *state) {
    if (state->delta) axpy_cpu(state->batch * l->inputs, l->scale, l->delta, state->delta);
    return STATUS_OK;
}

status make_cost_layer(layer **made, size_t inputs, cost kind, float scale, int masks_input, const layer_rule *rule) {
    layer *l = *made = make_layer((shape){inputs, 1, 1}, (shape){inputs, 1, 1});
    if (!l) return STATUS_SHAPE;
    l->cost_kind = kind;
    l->scale = scale;
    l->masks_input = masks_input;
    l->loss.truths = inputs;
    l->layer_rule = *rule;
    l->has_cost = 1;
    l->forward = forward_cost_layer;
    l->backward = backward_cost_layer;
    return STATUS_OK;
}
