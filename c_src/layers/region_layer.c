/* The head of YOLOv2 (src/region_layer.c of pjreddie/darknet and AlexeyAB/darknet). The first keeps planes for each entry and takes
 * logistics of x, y, objectness and, without softmax, of the classes. The second turns the image inside out (cell, anchor, entry)
 * and takes the logistic of the objectness alone, which it takes to be entry 4. With a tree of classes each group is a softmax; the
 * first fork's CPU reads that from wrong places and divides by a temperature of 0: here it is what its GPU computes. */
#include <string.h>

#include "../internal.h"
#include "../kernels/kernels.h"

static void activate_planes(const layer *l, const float *input, float *output) {
    const arithmetic_rule *rule = &l->layer_rule.arithmetic;
    size_t cells = l->h * l->w, first = l->coords + !l->background, n = l->classes + (size_t)l->background;
    activate_array(output, 2 * cells, ACTIVATION_LOGISTIC, rule, 0);
    if (!l->background) activate_array(output + l->coords * cells, cells, ACTIVATION_LOGISTIC, rule, 0);
    if (l->softmax_tree) {
        size_t offset = (l->coords + 1) * cells;
        for (size_t i = offset; i < offset + cells; ++i)
            softmax_tree_cpu(input + i, l->softmax_tree, 1, cells, rule->softmax, output + i);
        return;
    }
    if (!l->softmax) {
        activate_array(output + (l->coords + 1) * cells, l->classes * cells, ACTIVATION_LOGISTIC, rule, 0);
        return;
    }
    for (size_t i = 0; i < cells; ++i)
        softmax_cpu(input + first * cells + i, n, 1, cells, rule->softmax, output + first * cells + i);
}

static void activate_flat(const layer *l, float *cell) {
    const arithmetic_rule *rule = &l->layer_rule.arithmetic;
    activate_array(cell + 4, 1, ACTIVATION_LOGISTIC, rule, 0);
    if (l->softmax_tree)
        softmax_tree_cpu(cell + 5, l->softmax_tree, 1, 1, rule->softmax, cell + 5);
    else if (l->softmax)
        softmax_cpu(cell + 5, l->classes, 1, 1, rule->softmax, cell + 5);
}

static status forward_region_layer(layer *l, const network_state *state) {
    size_t cells = l->h * l->w, entries = l->coords + 1 + l->classes, heads = state->batch * l->n;
    if (l->layer_rule.region == REGION_FLATTENED) {
        flatten_cpu(state->input, state->batch, cells, entries * l->n, 1, l->output);
        for (size_t i = 0; i < heads * cells; ++i) activate_flat(l, l->output + i * entries);
        return head_loss(l, state, LOSS_OF_FLAT_REGION);
    }
    memcpy(l->output, state->input, state->batch * l->outputs * sizeof *l->output);
    for (size_t i = 0; i < heads; ++i) activate_planes(l, state->input + i * entries * cells, l->output + i * entries * cells);
    return head_loss(l, state, LOSS_OF_PLANAR_REGION);
}

status make_region_layer(layer **made, const head_options *o, const float *anchors, const layer_rule *rule) {
    *made = NULL;
    if (o->coords < 4 || o->coords > o->c || o->classes > o->c || !o->n || o->c % o->n || o->c / o->n != o->classes + o->coords + 1)
        return fail(STATUS_SHAPE, "%zu channels are not %zu anchors times (%zu + 1 + %zu classes)", o->c, o->n, o->coords,
                    o->classes);
    layer *l = make_layer((shape){o->c, o->h, o->w}, (shape){o->c, o->h, o->w});
    if (!l) return STATUS_SHAPE;
    l->anchors = make_array(2 * o->n);
    if (!l->anchors) {
        free_layer(l);
        return STATUS_OUT_OF_MEMORY;
    }
    memcpy(l->anchors, anchors, 2 * o->n * sizeof *anchors);
    l->n = l->total = o->n, l->classes = o->classes, l->coords = o->coords;
    l->softmax = o->softmax;
    l->background = o->background, l->classfix = o->classfix;
    l->layer_rule = *rule;
    l->has_cost = 1;
    l->forward = forward_region_layer;
    l->backward = backward_loss;
    *made = l;
    return STATUS_OK;
}
