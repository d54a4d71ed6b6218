/* Convolutions that share no weights, and transposed ones (pjreddie/darknet src/local_layer.c, src/deconvolutional_layer.c). */
#include "../internal.h"
#include "../kernels/kernels.h"

static local_shape shape_of(const layer *l) {
    return (local_shape){l->c, l->h, l->w, l->n, l->out_h, l->out_w, l->size, l->stride_x, l->pad};
}

static status check(const local_options *o, const char *name) {
    size_t largest = (size_t)1 << 20; /* so that no product of two of these overflows */
    if (!o->c || !o->h || !o->w || !o->n || !o->size || !o->stride)
        return fail(STATUS_SHAPE, "%s needs an image, filters, size and stride of 1 or more", name);
    if (o->h > largest || o->w > largest || o->size > largest || o->stride > largest || o->pad > largest)
        return fail(STATUS_SHAPE, "%s of %zu x %zu with size %zu, stride %zu and padding %zu is too large", name, o->w, o->h,
                    o->size, o->stride, o->pad);
    return STATUS_OK;
}

static status make_sized(layer **made, const local_options *o, shape out, const layer_rule *rule) {
    layer *l = *made = make_layer((shape){o->c, o->h, o->w}, out);
    if (!l) return STATUS_SHAPE;
    l->n = o->n, l->size = o->size, l->stride_x = l->stride_y = o->stride, l->pad = o->pad;
    l->activation = o->activation;
    l->layer_rule = *rule;
    return STATUS_OK;
}

static status make_weights(layer *l, size_t per_pixel, size_t biases) {
    size_t factors[] = {per_pixel, l->n, l->c, l->size, l->size};
    if (!product(&l->nweights, factors, 5)) return fail(STATUS_SHAPE, "the weights of %zu filters are too many", l->n);
    if (!(l->weights = make_array(l->nweights)) || (biases && !(l->biases = make_array(biases)))) return STATUS_OUT_OF_MEMORY;
    return STATUS_OK;
}

static status finish(layer **made, status s) {
    if (s == STATUS_OK) return s;
    free_layer(*made);
    *made = NULL;
    return s;
}

static status forward_local_layer(layer *l, const network_state *state) {
    local_shape s = shape_of(l);
    local_cpu(state->input, state->batch, &s, l->weights, l->biases, l->output);
    return activate_output(l, l->output, (extent){state->batch, l->n, l->out_h * l->out_w}, NULL, state, 0);
}

static status backward_local_layer(layer *l, const network_state *state) {
    local_shape s = shape_of(l);
    if (ensure_all_updates(l) != STATUS_OK) return STATUS_OUT_OF_MEMORY;
    activation_delta(l, (extent){state->batch, l->n, l->out_h * l->out_w});
    for (size_t b = 0; b < state->batch; ++b) axpy_cpu(l->outputs, 1, l->delta + b * l->outputs, l->bias_updates);
    local_weight_gradients(state->input, l->delta, state->batch, &s, l->weight_updates);
    if (state->delta) local_input_gradients(l->weights, l->delta, state->batch, &s, state->delta);
    return STATUS_OK;
}

/* A padding shrinks the output as the one of half a kernel would, whatever its size: the forks' own. */
status make_local_layer(layer **made, const local_options *o, const layer_rule *rule) {
    *made = NULL;
    status s = check(o, "a local layer");
    if (s != STATUS_OK) return s;
    size_t loss = o->pad ? 1 : o->size;
    if (o->h < loss || o->w < loss)
        return fail(STATUS_SHAPE, "a kernel of %zu x %zu is larger than an image of %zu x %zu", o->size, o->size, o->w, o->h);
    s = make_sized(made, o, (shape){o->n, (o->h - loss) / o->stride + 1, (o->w - loss) / o->stride + 1}, rule);
    if (s != STATUS_OK) return s;
    (*made)->forward = forward_local_layer;
    (*made)->backward = backward_local_layer;
    (*made)->update = update_weights;
    return finish(made, make_weights(*made, (*made)->out_h * (*made)->out_w, (*made)->outputs));
}

static status forward_deconvolutional_layer(layer *l, const network_state *state) {
    local_shape s = shape_of(l);
    extent e = {state->batch, l->n, l->out_h * l->out_w};
    deconvolve(state->input, state->batch, &s, l->weights, l->output);
    status done = l->batchnorm ? normalize_output(l->batchnorm, l->output, state) : STATUS_OK;
    return done == STATUS_OK ? activate_output(l, l->output, e, l->batchnorm ? NULL : l->biases, state, 0) : done;
}

static status backward_deconvolutional_layer(layer *l, const network_state *state) {
    local_shape s = shape_of(l);
    extent e = {state->batch, l->n, l->out_h * l->out_w};
    status done = ensure_all_updates(l);
    if (done == STATUS_OK) done = delta_of_sums(l, e, l->output, l->delta, state);
    if (done != STATUS_OK) return done;
    deconvolution_weight_gradients(state->input, l->delta, state->batch, &s, l->weight_updates);
    if (state->delta) deconvolution_input_gradients(l->weights, l->delta, state->batch, &s, state->delta);
    return STATUS_OK;
}

status make_deconvolutional_layer(layer **made, const local_options *o, const batchnorm_rule *bn, const layer_rule *rule) {
    *made = NULL;
    status s = check(o, "a deconvolution");
    if (s != STATUS_OK) return s;
    size_t h = (o->h - 1) * o->stride + o->size, w = (o->w - 1) * o->stride + o->size;
    if (h <= 2 * o->pad || w <= 2 * o->pad)
        return fail(STATUS_SHAPE, "a padding of %zu leaves nothing of an output of %zu x %zu", o->pad, w, h);
    s = make_sized(made, o, (shape){o->n, h - 2 * o->pad, w - 2 * o->pad}, rule);
    if (s != STATUS_OK) return s;
    layer *l = *made;
    l->forward = forward_deconvolutional_layer;
    l->backward = backward_deconvolutional_layer;
    l->update = update_weights;
    s = make_weights(l, 1, o->batch_normalize ? 0 : l->n);
    if (s == STATUS_OK && o->batch_normalize) s = make_batchnorm_layer(&l->batchnorm, l->n, l->out_h, l->out_w, bn);
    return finish(made, s);
}
