/* The head of YOLOv1 (src/detection_layer.c of pjreddie/darknet and AlexeyAB/darknet): an image is the classes of side*side cells,
 * then n objectnesses of each, then n boxes of each. Where softmax says so, each cell's classes go through one. */
#include <string.h>

#include "../internal.h"
#include "../kernels/kernels.h"

static status forward_detection_layer(layer *l, const network_state *state) {
    memcpy(l->output, state->input, state->batch * l->outputs * sizeof *l->output);
    for (size_t b = 0; b < state->batch && l->softmax; ++b) {
        for (size_t i = 0; i < l->side * l->side; ++i) {
            float *cell = l->output + b * l->outputs + i * l->classes;
            softmax_cpu(cell, l->classes, 1, 1, l->layer_rule.arithmetic.softmax, cell);
        }
    }
    return head_loss(l, state, LOSS_OF_DETECTION);
}

status make_detection_layer(layer **made, const head_options *o, const layer_rule *rule) {
    *made = NULL;
    layer *l = make_layer((shape){o->c, o->h, o->w}, (shape){o->c, o->h, o->w});
    if (!l) return STATUS_SHAPE;
    /* more than the values there are of anything cannot fit, so the products below do not overflow where they are looked at */
    size_t most = l->inputs, cells, boxes;
    int fits = o->side && o->n && o->coords >= 4 && o->classes <= most && o->coords < most &&
               product(&cells, (size_t[]){o->side, o->side}, 2) && cells <= most &&
               product(&boxes, (size_t[]){o->n, 1 + o->coords}, 2) && boxes <= most && most % cells == 0 &&
               most / cells == boxes + o->classes;
    if (!fits) {
        free_layer(l);
        return fail(STATUS_SHAPE, "%zu values are not %zu x %zu cells times (%zu boxes of 1 + %zu, and %zu classes)", most, o->side,
                    o->side, o->n, o->coords, o->classes);
    }
    l->n = l->total = o->n, l->side = o->side, l->classes = o->classes, l->coords = o->coords;
    l->softmax = o->softmax, l->sqrt = o->sqrt;
    l->layer_rule = *rule;
    l->has_cost = 1;
    l->forward = forward_detection_layer;
    l->backward = backward_loss;
    *made = l;
    return STATUS_OK;
}
