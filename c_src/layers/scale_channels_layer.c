/* Another layer times the input, then activation (AlexeyAB/darknet src/scale_channels_layer.c, src/sam_layer.c). */
#include "../internal.h"
#include "../kernels/kernels.h"

static status forward_scale_channels_layer(layer *l, const network_state *state) {
    extent e = {state->batch, l->out_c, l->out_h * l->out_w};
    scale_channels_cpu(state->sources[0], state->input, e, l->scale_wh, l->output);
    return activate_output(l, l->output, e, NULL, state, 0);
}

static status backward_scale_channels_layer(layer *l, const network_state *state) {
    extent e = {state->batch, l->out_c, l->out_h * l->out_w};
    activation_delta(l, e);
    scale_channels_gradients(state->sources[0], state->input, l->delta, e, l->scale_wh, 1, state->delta, state->source_deltas[0]);
    return STATUS_OK;
}

static status make_product(layer **made, shape in, shape source, activation a, const layer_rule *rule) {
    layer *l = *made = make_layer(in, source);
    if (!l) return STATUS_SHAPE;
    l->n_sources = 1;
    l->activation = a;
    l->layer_rule = *rule;
    l->forward = forward_scale_channels_layer;
    l->backward = backward_scale_channels_layer;
    return STATUS_OK;
}

status make_scale_channels_layer(layer **made, shape in, shape source, int scale_wh, activation a, const layer_rule *rule) {
    *made = NULL;
    int fits = scale_wh ? in.c == 1 && in.h == source.h && in.w == source.w : in.h == 1 && in.w == 1 && in.c == source.c;
    if (!fits)
        return fail(STATUS_SHAPE, "%zu x %zu x %zu cannot scale %s of %zu x %zu x %zu", in.w, in.h, in.c,
                    scale_wh ? "each pixel" : "each channel", source.w, source.h, source.c);
    status s = make_product(made, in, source, a, rule);
    if (s == STATUS_OK) (*made)->scale_wh = scale_wh;
    return s;
}

static status forward_sam_layer(layer *l, const network_state *state) {
    extent flat = {1, 1, state->batch * l->outputs}, e = {state->batch, l->out_c, l->out_h * l->out_w};
    scale_channels_cpu(state->sources[0], state->input, flat, 1, l->output);
    return activate_output(l, l->output, e, NULL, state, 0);
}

static status backward_sam_layer(layer *l, const network_state *state) {
    extent flat = {1, 1, state->batch * l->outputs}, e = {state->batch, l->out_c, l->out_h * l->out_w};
    int added = l->layer_rule.copied_delta == COPIED_DELTA_ADDED;
    activation_delta(l, e);
    scale_channels_gradients(state->sources[0], state->input, l->delta, flat, 1, added, state->delta, state->source_deltas[0]);
    return STATUS_OK;
}

status make_sam_layer(layer **made, shape in, shape source, activation a, const layer_rule *rule) {
    *made = NULL;
    if (in.c != source.c || in.h != source.h || in.w != source.w)
        return fail(STATUS_SHAPE, "%zu x %zu x %zu cannot be multiplied by %zu x %zu x %zu", source.w, source.h, source.c, in.w,
                    in.h, in.c);
    status s = make_product(made, in, source, a, rule);
    if (s != STATUS_OK) return s;
    (*made)->forward = forward_sam_layer;
    (*made)->backward = backward_sam_layer;
    return STATUS_OK;
}
