/* The mean of each channel (pjreddie/darknet src/avgpool_layer.c). */
#include "../internal.h"
#include "../kernels/kernels.h"

static status forward_avgpool_layer(layer *l, const network_state *state) {
    avgpool_cpu(state->input, (extent){state->batch, l->c, l->h * l->w}, l->output);
    return STATUS_OK;
}

static status backward_avgpool_layer(layer *l, const network_state *state) {
    if (state->delta) avgpool_gradients(l->delta, (extent){state->batch, l->c, l->h * l->w}, state->delta);
    return STATUS_OK;
}

status make_avgpool_layer(layer **made, size_t c, size_t h, size_t w) {
    layer *l = *made = make_layer((shape){c, h, w}, (shape){c, 1, 1});
    if (!l) return STATUS_SHAPE;
    l->forward = forward_avgpool_layer;
    l->backward = backward_avgpool_layer;
    return STATUS_OK;
}
