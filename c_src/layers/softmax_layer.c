/* Softmax over each of the groups that an image's values divide into, or over those of a tree, which then alone says what a group
 * is (pjreddie/darknet src/softmax_layer.c). Its loss is taken over all values: that a tree's masked ones are left out happens in
 * the fork's GPU alone. */
#include "../internal.h"
#include "../kernels/kernels.h"
#include "../kernels/losses.h"

static status softmax_loss(layer *l, const network_state *state) {
    if (!has_truth(l, state)) return STATUS_OK;
    status s = prepare_delta(l, state->batch, DELTA_START_KEPT);
    if (s == STATUS_OK)
        l->cost =
            softmax_cross_entropy(l->output, state->truth, state->batch * l->outputs, l->layer_rule.losses.functions, l->delta);
    return s;
}

static status forward_softmax_layer(layer *l, const network_state *state) {
    size_t n = l->inputs / l->groups;
    precision p = l->layer_rule.arithmetic.softmax;
    if (l->softmax_tree) {
        for (size_t i = 0; i < state->batch * l->inputs; i += l->inputs)
            softmax_tree_cpu(state->input + i, l->softmax_tree, l->temperature, 1, p, l->output + i);
        return softmax_loss(l, state);
    }
    for (size_t g = 0; g < state->batch * l->groups; ++g)
        softmax_cpu(state->input + g * n, n, l->temperature, 1, p, l->output + g * n);
    return softmax_loss(l, state);
}

status make_softmax_layer(layer **made, size_t c, size_t h, size_t w, size_t groups, float temperature, const layer_rule *rule) {
    layer *l = make_layer((shape){c, h, w}, (shape){c, h, w});
    *made = NULL;
    if (!l) return STATUS_SHAPE;
    if (!groups || l->inputs % groups) {
        status s = fail(STATUS_SHAPE, "%zu values do not divide into %zu groups", l->inputs, groups);
        free_layer(l);
        return s;
    }
    l->groups = groups;
    l->temperature = temperature;
    l->layer_rule = *rule;
    l->has_cost = 1;
    l->forward = forward_softmax_layer;
    l->backward = backward_loss;
    *made = l;
    return STATUS_OK;
}
