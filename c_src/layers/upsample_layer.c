/* Each value repeated stride times in both directions, or the reverse of it (pjreddie/darknet src/upsample_layer.c). */
#include "../internal.h"
#include "../kernels/kernels.h"

static status forward_upsample_layer(layer *l, const network_state *state) {
    if (l->reverse)
        downsample_cpu(state->input, state->batch * l->c, l->out_h, l->out_w, l->stride_x, l->scale, l->output);
    else
        upsample_cpu(state->input, state->batch * l->c, l->h, l->w, l->stride_x, l->scale, l->output);
    return STATUS_OK;
}

static status write_repeated_delta(const layer *l, const network_state *state, float *into) {
    upsample_cpu(l->delta, state->batch * l->c, l->out_h, l->out_w, l->stride_x, l->scale, into);
    return STATUS_OK;
}

static status backward_upsample_layer(layer *l, const network_state *state) {
    if (l->reverse) return copy_delta(l, state, write_repeated_delta);
    if (state->delta) add_downsampled_cpu(l->delta, state->batch * l->c, l->h, l->w, l->stride_x, l->scale, state->delta);
    return STATUS_OK;
}

status make_upsample_layer(layer **made, size_t c, size_t h, size_t w, size_t stride, int reverse, float scale,
                           const layer_rule *rule) {
    *made = NULL;
    if (!stride || stride > 1 << 15) return fail(STATUS_SHAPE, "an upsample by %zu is not from 1 to 32768", stride);
    if (reverse && (h % stride || w % stride))
        return fail(STATUS_SHAPE, "%zu x %zu does not divide by a stride of %zu", w, h, stride);
    layer *l = make_layer((shape){c, h, w}, reverse ? (shape){c, h / stride, w / stride} : (shape){c, h * stride, w * stride});
    if (!l) return STATUS_SHAPE;
    l->stride_x = l->stride_y = stride;
    l->reverse = reverse;
    l->scale = scale;
    l->layer_rule = *rule;
    l->forward = forward_upsample_layer;
    l->backward = backward_upsample_layer;
    *made = l;
    return STATUS_OK;
}
