/* The head of YOLOv3 and later (pjreddie/darknet src/yolo_layer.c, AlexeyAB/darknet src/yolo_layer.c): for each anchor x, y, w, h,
 * objectness and the classes as planes of h*w. And the one whose x, y, w and h each have an uncertainty behind them
 * (AlexeyAB/darknet src/gaussian_yolo_layer.c). */
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
    return head_loss(l, state, LOSS_OF_YOLO);
}

/* x, y and all uncertainties through the logistic, x and y spread; w and h stay. */
static status forward_gaussian_yolo_layer(layer *l, const network_state *state) {
    const arithmetic_rule *rule = &l->layer_rule.arithmetic;
    size_t cells = l->h * l->w, entries = l->coords + 1 + l->classes;
    memcpy(l->output, state->input, state->batch * l->outputs * sizeof *l->output);
    for (size_t i = 0; i < state->batch * l->n; ++i) {
        float *head = l->output + i * entries * cells;
        activate_array(head, 4 * cells, ACTIVATION_LOGISTIC, rule, 0);
        spread(head, cells, l->scale_x_y);
        spread(head + 2 * cells, cells, l->scale_x_y);
        activate_array(head + 5 * cells, cells, ACTIVATION_LOGISTIC, rule, 0);
        activate_array(head + 7 * cells, (2 + l->classes) * cells, ACTIVATION_LOGISTIC, rule, 0);
    }
    return head_loss(l, state, LOSS_OF_GAUSSIAN_YOLO);
}

static status make_head(layer **made, const head_options *o, size_t coords, const int *mask, const float *anchors) {
    *made = NULL;
    if (o->coords != coords || o->classes > o->c || !o->n || o->c % o->n || o->c / o->n != coords + 1 + o->classes)
        return fail(STATUS_SHAPE, "%zu channels are not %zu anchors times (%zu + 1 + %zu classes)", o->c, o->n, coords, o->classes);
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
    l->has_cost = 1;
    l->backward = backward_loss;
    *made = l;
    return STATUS_OK;
}

status make_yolo_layer(layer **made, const head_options *o, const int *mask, const float *anchors, const layer_rule *rule) {
    status s = make_head(made, o, 4, mask, anchors);
    if (s != STATUS_OK) return s;
    (*made)->new_coords = o->new_coords;
    (*made)->layer_rule = *rule;
    (*made)->forward = forward_yolo_layer;
    return STATUS_OK;
}

status make_gaussian_yolo_layer(layer **made, const head_options *o, const int *mask, const float *anchors,
                                const layer_rule *rule) {
    status s = make_head(made, o, 8, mask, anchors);
    if (s != STATUS_OK) return s;
    (*made)->yolo_point = o->yolo_point;
    (*made)->layer_rule = *rule;
    (*made)->forward = forward_gaussian_yolo_layer;
    return STATUS_OK;
}
