/* Layers that change each pixel by itself: an activation, and what each channel is divided by (pjreddie/darknet
 * src/activation_layer.c, src/logistic_layer.c, src/l2norm_layer.c, src/normalization_layer.c). */
#include <string.h>

#include "../internal.h"
#include "../kernels/kernels.h"

static extent extent_of(const layer *l, size_t batch) {
    return (extent){batch, l->c, l->h * l->w};
}

static void copy_input(layer *l, const network_state *state) {
    memcpy(l->output, state->input, state->batch * l->outputs * sizeof *l->output);
}

static status forward_activation_layer(layer *l, const network_state *state) {
    copy_input(l, state);
    activate_channels(l->output, extent_of(l, state->batch), l->activation, &l->layer_rule.arithmetic, 0);
    return STATUS_OK;
}

status make_activation_layer(layer **made, size_t c, size_t h, size_t w, activation a, const layer_rule *rule) {
    layer *l = *made = make_layer((shape){c, h, w}, (shape){c, h, w});
    if (!l) return STATUS_SHAPE;
    l->activation = a;
    l->layer_rule = *rule;
    l->forward = forward_activation_layer;
    return STATUS_OK;
}

static status forward_l2norm_layer(layer *l, const network_state *state) {
    copy_input(l, state);
    l2normalize_cpu(l->output, extent_of(l, state->batch));
    return STATUS_OK;
}

status make_l2norm_layer(layer **made, size_t c, size_t h, size_t w) {
    layer *l = *made = make_layer((shape){c, h, w}, (shape){c, h, w});
    if (!l) return STATUS_SHAPE;
    l->forward = forward_l2norm_layer;
    return STATUS_OK;
}

static status forward_normalization_layer(layer *l, const network_state *state) {
    normalization_window window = {l->size, l->alpha, l->beta, l->kappa};
    extent e = extent_of(l, state->batch);
    size_t threads = get_num_threads(); /* asked once: another thread may change it */
    float *own = NULL, *norms = take_scratch(state, e.spatial, threads, &own);
    if (!norms) return STATUS_OUT_OF_MEMORY;
    normalize_channels_cpu(state->input, e, &window, threads, norms, l->output);
    array_release(own);
    return STATUS_OK;
}

status make_normalization_layer(layer **made, size_t c, size_t h, size_t w, size_t size, float alpha, float beta, float kappa) {
    *made = NULL;
    if (!size) return fail(STATUS_SHAPE, "a normalization needs a size of 1 or more");
    layer *l = *made = make_layer((shape){c, h, w}, (shape){c, h, w});
    if (!l) return STATUS_SHAPE;
    l->size = size;
    l->alpha = alpha, l->beta = beta, l->kappa = kappa;
    l->forward = forward_normalization_layer;
    return STATUS_OK;
}
