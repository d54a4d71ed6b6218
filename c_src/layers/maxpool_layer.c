/* The largest value of a window, its mean, or the largest over channels (AlexeyAB/darknet src/maxpool_layer.c). */
#include "../internal.h"
#include "../kernels/kernels.h"

static void pool(const layer *l, const network_state *state, shape out, float *output) {
    maxpool_shape s = {l->c, l->h, l->w, out.h, out.w, l->size, l->stride_x, l->stride_y, l->pad};
    if (l->depth)
        maxpool_depth_cpu(state->input, (extent){state->batch, l->c, l->h * l->w}, l->out_c, output);
    else if (l->average)
        local_avgpool_cpu(state->input, state->batch, &s, output);
    else
        maxpool_cpu(state->input, state->batch, &s, output);
}

static status forward_maxpool_layer(layer *l, const network_state *state) {
    if (!l->blur) {
        pool(l, state, (shape){l->out_c, l->out_h, l->out_w}, l->output);
        return STATUS_OK;
    }
    float *sharp = make_sharp(l->blur, state);
    if (!sharp) return STATUS_OUT_OF_MEMORY;
    pool(l, state, (shape){l->blur->c, l->blur->h, l->blur->w}, sharp);
    status done = blur_output(l->blur, sharp, state, l->output);
    array_release(sharp);
    return done;
}

static void add_gradients(const layer *l, const network_state *state, shape out, const float *delta) {
    maxpool_shape s = {l->c, l->h, l->w, out.h, out.w, l->size, l->stride_x, l->stride_y, l->pad};
    if (l->depth)
        maxpool_depth_gradients(state->input, delta, (extent){state->batch, l->c, l->h * l->w}, l->out_c, state->delta);
    else if (l->average)
        local_avgpool_gradients(delta, state->batch, &s, l->layer_rule.gradient == LAYER_GRADIENT_EXACT, state->delta);
    else
        maxpool_gradients(state->input, delta, state->batch, &s, state->delta);
}

/* The windows' largest values are looked for again: nothing has changed the input since. */
static status backward_maxpool_layer(layer *l, const network_state *state) {
    if (!state->delta) return STATUS_OK;
    if (!l->blur) {
        add_gradients(l, state, (shape){l->out_c, l->out_h, l->out_w}, l->delta);
        return STATUS_OK;
    }
    float *sharp = NULL;
    status done = delta_before_blur(l, state, &sharp);
    if (done == STATUS_OK) add_gradients(l, state, (shape){l->blur->c, l->blur->h, l->blur->w}, sharp);
    array_release(sharp);
    return done;
}

static status check(const maxpool_options *o) {
    size_t largest = (size_t)1 << 31;
    if (!o->size || !o->stride_x || !o->stride_y) return fail(STATUS_SHAPE, "a maxpool needs a size and a stride of 1 or more");
    if (o->size > largest || o->padding > largest || o->h > largest || o->w > largest)
        return fail(STATUS_SHAPE, "a window of %zu with a padding of %zu is too large", o->size, o->padding);
    if (o->out_channels && o->antialiasing)
        return fail(STATUS_UNSUPPORTED, "a maxpool over channels is not blurred; take antialiasing=0");
    if (o->h + o->padding < o->size || o->w + o->padding < o->size)
        return fail(STATUS_SHAPE, "a window of %zu does not fit into %zu x %zu with a padding of %zu", o->size, o->w, o->h,
                    o->padding);
    return STATUS_OK;
}

status make_maxpool_layer(layer **made, const maxpool_options *o, const layer_rule *rule) {
    *made = NULL;
    status s = check(o);
    if (s != STATUS_OK) return s;
    size_t stride_x = o->antialiasing ? 1 : o->stride_x, stride_y = o->antialiasing ? 1 : o->stride_y;
    shape out = {o->c, (o->h + o->padding - o->size) / stride_y + 1, (o->w + o->padding - o->size) / stride_x + 1};
    if (o->out_channels) out = (shape){o->out_channels, o->h, o->w};
    layer *blur = NULL;
    if (o->antialiasing) {
        s = make_blur(&blur, out, o->antialiasing, o->stride_x, o->stride_y);
        if (s != STATUS_OK) return s;
        out = (shape){blur->out_c, blur->out_h, blur->out_w};
    }
    layer *l = *made = make_layer((shape){o->c, o->h, o->w}, out);
    if (!l) {
        free_layer(blur);
        return STATUS_SHAPE;
    }
    l->blur = blur;
    l->size = o->size, l->stride_x = stride_x, l->stride_y = stride_y, l->pad = o->padding;
    l->depth = o->out_channels != 0, l->average = o->average;
    l->layer_rule = *rule;
    l->forward = forward_maxpool_layer;
    l->backward = backward_maxpool_layer;
    return STATUS_OK;
}
