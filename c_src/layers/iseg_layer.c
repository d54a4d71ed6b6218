/* Instance segmentation (pjreddie/darknet src/iseg_layer.c): planes of classes, which go through the logistic, then planes of an
 * embedding, which stay. That fork's CPU goes on to the loss without a truth and crashes; its GPU ends here. */
#include <string.h>

#include "../internal.h"

static status forward_iseg_layer(layer *l, const network_state *state) {
    memcpy(l->output, state->input, state->batch * l->outputs * sizeof *l->output);
    for (size_t b = 0; b < state->batch; ++b)
        activate_array(l->output + b * l->outputs, l->classes * l->h * l->w, ACTIVATION_LOGISTIC, &l->layer_rule.arithmetic, 0);
    return head_loss(l, state, LOSS_OF_ISEG);
}

status make_iseg_layer(layer **made, size_t c, size_t h, size_t w, size_t classes, size_t ids, const layer_rule *rule) {
    *made = NULL;
    if (classes > c || c - classes != ids)
        return fail(STATUS_SHAPE, "%zu channels are not %zu classes and %zu ids", c, classes, ids);
    layer *l = make_layer((shape){c, h, w}, (shape){c, h, w});
    if (!l) return STATUS_SHAPE;
    l->classes = classes;
    l->layer_rule = *rule;
    l->has_cost = 1;
    l->forward = forward_iseg_layer;
    l->backward = backward_loss;
    *made = l;
    return STATUS_OK;
}
