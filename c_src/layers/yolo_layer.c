/* The head of YOLOv3 and later (pjreddie/darknet src/yolo_layer.c, AlexeyAB/darknet src/yolo_layer.c): for each anchor x, y, w, h,
 * objectness and the classes as planes of h*w. */
#include <stdlib.h>
#include <string.h>

#include "../internal.h"

/* x = x*scale + offset, the spread of AlexeyAB's scal_add_cpu; by 1 it changes nothing. */
static void spread(float *x, size_t n, float scale) {
    float offset = (float)(-0.5 * (double)(scale - 1));
    for (size_t i = 0; i < n; ++i) x[i] = x[i] * scale + offset;
}

static status forward_yolo_layer(layer *l, const network_state *state) {
    const arithmetic_rule *rule = &l->layer_rule.arithmetic;
    size_t cells = l->h * l->w, entries = l->coords + 1 + l->classes;
    memcpy(l->output, state->input, state->batch * l->outputs * sizeof *l->output);
    for (size_t i = 0; i < state->batch * l->n; ++i) {
        float *head = l->output + i * entries * cells;
        if (!l->new_coords) {
            activate_array(head, 2 * cells, ACTIVATION_LOGISTIC, rule, 0);
            activate_array(head + l->coords * cells, (1 + l->classes) * cells, ACTIVATION_LOGISTIC, rule, 0);
        }
        spread(head, 2 * cells, l->scale_x_y);
    }
    return STATUS_OK;
}

status make_yolo_layer(layer **made, const head_options *o, const int *mask, const float *anchors, const layer_rule *rule) {
    *made = NULL;
    if (o->coords != 4 || !o->n || o->c != o->n * (o->classes + 5))
        return fail(STATUS_SHAPE, "%zu channels are not %zu anchors times (4 + 1 + %zu classes)", o->c, o->n, o->classes);
    for (size_t i = 0; i < o->n; ++i)
        if (mask[i] < 0 || (size_t)mask[i] >= o->total)
            return fail(STATUS_SHAPE, "mask %d is not among %zu anchors", mask[i], o->total);
    layer *l = make_layer((shape){o->c, o->h, o->w}, (shape){o->c, o->h, o->w});
    if (!l) return STATUS_SHAPE;
    l->mask = malloc(o->n * sizeof *mask);
    l->anchors = make_array(2 * o->total);
    if (!l->mask || !l->anchors) {
        free_layer(l);
        return fail(STATUS_OUT_OF_MEMORY, "no memory for a yolo head");
    }
    memcpy(l->mask, mask, o->n * sizeof *mask);
    memcpy(l->anchors, anchors, 2 * o->total * sizeof *anchors);
    l->n = o->n, l->total = o->total, l->classes = o->classes, l->coords = o->coords;
    l->scale_x_y = o->scale_x_y;
    l->new_coords = o->new_coords;
    l->layer_rule = *rule;
    l->forward = forward_yolo_layer;
    *made = l;
    return STATUS_OK;
}
