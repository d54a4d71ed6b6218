/* The largest value of a window (pjreddie/darknet src/maxpool_layer.c): padding is the total of both sides. */
#include "../internal.h"
#include "../kernels/kernels.h"

static status forward_maxpool_layer(layer *l, const network_state *state) {
    maxpool_shape s = {l->c, l->h, l->w, l->out_h, l->out_w, l->size, l->stride_x, l->stride_y, l->pad};
    maxpool_cpu(state->input, state->batch, &s, l->output);
    return STATUS_OK;
}

status make_maxpool_layer(layer **made, size_t c, size_t h, size_t w, size_t size, size_t stride_x, size_t stride_y,
                          size_t padding) {
    *made = NULL;
    if (!size || !stride_x || !stride_y) return fail(STATUS_SHAPE, "a maxpool needs a size and a stride of 1 or more");
    if (h + padding < size || w + padding < size)
        return fail(STATUS_SHAPE, "a window of %zu does not fit into %zu x %zu with a padding of %zu", size, w, h, padding);
    layer *l = make_layer((shape){c, h, w}, (shape){c, (h + padding - size) / stride_y + 1, (w + padding - size) / stride_x + 1});
    if (!l) return STATUS_SHAPE;
    l->size = size, l->stride_x = stride_x, l->stride_y = stride_y, l->pad = padding;
    l->forward = forward_maxpool_layer;
    *made = l;
    return STATUS_OK;
}
