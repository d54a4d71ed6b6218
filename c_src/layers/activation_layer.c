/* Layers that change each pixel by itself: an activation, and what each channel is divided by (pjreddie/darknet
 * src/activation_layer.c, src/logistic_layer.c, src/l2norm_layer.c, src/normalization_layer.c). */
#include <math.h>
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
    return activate_output(l, l->output, extent_of(l, state->batch), NULL, state, 0);
}

static status copy_own_delta(const layer *l, const network_state *state, float *into) {
    memcpy(into, l->delta, state->batch * l->outputs * sizeof *into);
    return STATUS_OK;
}

static status backward_activation_layer(layer *l, const network_state *state) {
    activation_delta(l, extent_of(l, state->batch));
    return copy_delta(l, state, copy_own_delta);
}

status make_activation_layer(layer **made, size_t c, size_t h, size_t w, activation a, const layer_rule *rule) {
    layer *l = *made = make_layer((shape){c, h, w}, (shape){c, h, w});
    if (!l) return STATUS_SHAPE;
    l->activation = a;
    l->layer_rule = *rule;
    l->forward = forward_activation_layer;
    l->backward = backward_activation_layer;
    return STATUS_OK;
}

static status forward_logistic_layer(layer *l, const network_state *state) {
    copy_input(l, state);
    activate_channels(l->output, extent_of(l, state->batch), ACTIVATION_LOGISTIC, &l->layer_rule.arithmetic, 0);
    if (!state->truth) return STATUS_OK;
    size_t n = state->batch * l->outputs;
    if (!l->delta || array_size(l->delta) < n) return fail(STATUS_STATE, "a loss needs a delta to fill");
    l->cost = 0;
    for (size_t i = 0; i < n; ++i) {
        float t = state->truth[i], p = l->output[i];
        l->cost += (float)((double)-t * log((double)p) - (double)(1 - t) * log((double)(1 - p)));
        l->delta[i] = t - p;
    }
    return STATUS_OK;
}

static status backward_logistic_layer(layer *l, const network_state *state) {
    add_delta(l, state, l->delta);
    return STATUS_OK;
}

status make_logistic_layer(layer **made, size_t c, size_t h, size_t w, const layer_rule *rule) {
    layer *l = *made = make_layer((shape){c, h, w}, (shape){c, h, w});
    if (!l) return STATUS_SHAPE;
    l->activation = ACTIVATION_LOGISTIC;
    l->layer_rule = *rule;
    l->has_cost = 1;
    l->forward = forward_logistic_layer;
    l->backward = backward_logistic_layer;
    return STATUS_OK;
}

static status forward_l2norm_layer(layer *l, const network_state *state) {
    copy_input(l, state);
    l2normalize_cpu(l->output, extent_of(l, state->batch));
    return STATUS_OK;
}

static status backward_l2norm_layer(layer *l, const network_state *state) {
    if (l->layer_rule.gradient == LAYER_GRADIENT_SIMPLIFIED)
        add_delta(l, state, l->delta);
    else if (state->delta)
        l2normalize_gradients(state->input, l->delta, extent_of(l, state->batch), state->delta);
    return STATUS_OK;
}

status make_l2norm_layer(layer **made, size_t c, size_t h, size_t w, const layer_rule *rule) {
    layer *l = *made = make_layer((shape){c, h, w}, (shape){c, h, w});
    if (!l) return STATUS_SHAPE;
    l->layer_rule = *rule;
    l->forward = forward_l2norm_layer;
    l->backward = backward_l2norm_layer;
    return STATUS_OK;
}

/* output = values divided as the input's norms say */
static status divide_by_norms(const layer *l, const network_state *state, const float *values, float *output) {
    normalization_window window = {l->size, l->alpha, l->beta, l->kappa};
    extent e = extent_of(l, state->batch);
    size_t threads = get_num_threads(); /* asked once: another thread may change it */
    float *own = NULL, *norms = take_scratch(state, e.spatial, threads, &own);
    if (!norms) return STATUS_OUT_OF_MEMORY;
    normalize_channels_cpu(state->input, values, e, &window, threads, norms, output);
    array_release(own);
    return STATUS_OK;
}

static status forward_normalization_layer(layer *l, const network_state *state) {
    return divide_by_norms(l, state, state->input, l->output);
}

static status write_normalization_delta(const layer *l, const network_state *state, float *into) {
    if (l->layer_rule.gradient == LAYER_GRADIENT_SIMPLIFIED) return divide_by_norms(l, state, l->delta, into);
    normalization_window window = {l->size, l->alpha, l->beta, l->kappa};
    size_t threads = get_num_threads();
    float *own = NULL, *scratch = take_scratch(state, 2 * l->c, threads, &own);
    if (!scratch) return STATUS_OUT_OF_MEMORY;
    normalize_channels_gradients(state->input, l->delta, extent_of(l, state->batch), &window, threads, scratch, into);
    array_release(own);
    return STATUS_OK;
}

static status backward_normalization_layer(layer *l, const network_state *state) {
    return copy_delta(l, state, write_normalization_delta);
}

status make_normalization_layer(layer **made, size_t c, size_t h, size_t w, size_t size, float alpha, float beta, float kappa,
                                const layer_rule *rule) {
    *made = NULL;
    if (!size) return fail(STATUS_SHAPE, "a normalization needs a size of 1 or more");
    layer *l = *made = make_layer((shape){c, h, w}, (shape){c, h, w});
    if (!l) return STATUS_SHAPE;
    l->size = size;
    l->alpha = alpha, l->beta = beta, l->kappa = kappa;
    l->layer_rule = *rule;
    l->forward = forward_normalization_layer;
    l->backward = backward_normalization_layer;
    return STATUS_OK;
}
