/* Space to channels and back. Darknet's first order (src/reorg_layer.c; AlexeyAB's reorg_old_layer.c) passes the small image's sizes
 * where the large one's were meant, and models were trained so; the true order is AlexeyAB's [reorg3d]. */
#include <string.h>

#include "../internal.h"
#include "../kernels/kernels.h"

static status forward_reorg_layer(layer *l, const network_state *state) {
    size_t stride = l->stride_x;
    if (l->flatten)
        flatten_cpu(state->input, state->batch, l->h * l->w, l->c, !l->reverse, l->output);
    else if (l->true_order)
        reorg_cpu(state->input, state->batch, l->out_c, l->out_h, l->out_w, stride, l->reverse, l->output);
    else
        reorg_cpu(state->input, state->batch, l->c, l->h, l->w, stride, l->reverse, l->output);
    return STATUS_OK;
}

static status write_reorg_delta(const layer *l, const network_state *state, float *into) {
    if (l->flatten)
        flatten_cpu(l->delta, state->batch, l->h * l->w, l->c, l->reverse, into);
    else if (l->true_order)
        reorg_cpu(l->delta, state->batch, l->out_c, l->out_h, l->out_w, l->stride_x, !l->reverse, into);
    else
        reorg_cpu(l->delta, state->batch, l->c, l->h, l->w, l->stride_x, !l->reverse, into);
    return STATUS_OK;
}

static status backward_reorg_layer(layer *l, const network_state *state) {
    return copy_delta(l, state, write_reorg_delta);
}

status make_reorg_layer(layer **made, size_t c, size_t h, size_t w, size_t stride, int reverse, int flatten, int true_order,
                        const layer_rule *rule) {
    size_t area = stride * stride;
    *made = NULL;
    if (!stride || stride > 1 << 15) return fail(STATUS_SHAPE, "a reorg with a stride of %zu is not from 1 to 32768", stride);
    if ((reverse || (!flatten && !true_order)) && c % area)
        return fail(STATUS_SHAPE, "%zu channels do not divide by the %zu pixels of a block", c, area);
    if (reverse && true_order && !flatten && c / area % area)
        return fail(STATUS_SHAPE, "%zu channels do not divide by the %zu pixels of a block twice", c, area);
    if (!reverse && (h % stride || w % stride))
        return fail(STATUS_SHAPE, "%zu x %zu does not divide by a stride of %zu", w, h, stride);
    shape out = reverse ? (shape){c / area, h * stride, w * stride} : (shape){c * area, h / stride, w / stride};
    layer *l = make_layer((shape){c, h, w}, out);
    if (!l) return STATUS_SHAPE;
    l->stride_x = l->stride_y = stride;
    l->reverse = reverse;
    l->flatten = flatten;
    l->true_order = true_order;
    l->layer_rule = *rule;
    l->forward = forward_reorg_layer;
    l->backward = backward_reorg_layer;
    *made = l;
    return STATUS_OK;
}

static status forward_reorg_extra_layer(layer *l, const network_state *state) {
    for (size_t b = 0; b < state->batch; ++b) {
        float *out = l->output + b * l->outputs;
        memcpy(out, state->input + b * l->inputs, l->inputs * sizeof *out);
        for (size_t i = l->inputs; i < l->outputs; ++i) out[i] = 0;
    }
    return STATUS_OK;
}

static status write_reorg_extra_delta(const layer *l, const network_state *state, float *into) {
    for (size_t b = 0; b < state->batch; ++b) memcpy(into + b * l->inputs, l->delta + b * l->outputs, l->inputs * sizeof *into);
    return STATUS_OK;
}

static status backward_reorg_extra_layer(layer *l, const network_state *state) {
    return copy_delta(l, state, write_reorg_extra_delta);
}

status make_reorg_extra_layer(layer **made, size_t c, size_t h, size_t w, size_t extra, const layer_rule *rule) {
    size_t floats, factors[] = {c, h, w};
    *made = NULL;
    if (!product(&floats, factors, 3) || floats + extra < floats)
        return fail(STATUS_SHAPE, "a reorg of %zu x %zu x %zu and %zu zeros is too large", w, h, c, extra);
    layer *l = *made = make_layer((shape){c, h, w}, (shape){floats + extra, 1, 1});
    if (!l) return STATUS_SHAPE;
    l->layer_rule = *rule;
    l->forward = forward_reorg_extra_layer;
    l->backward = backward_reorg_extra_layer;
    return STATUS_OK;
}
