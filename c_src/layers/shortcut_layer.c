/* The input plus other layers, then activation (AlexeyAB/darknet src/shortcut_layer.c; pjreddie's where sizes or factors differ). */
#include <stdlib.h>
#include <string.h>

#include "../internal.h"
#include "../kernels/kernels.h"

/* Whether the source is added value after value over the batch; not where it has too few values for that. */
static int sums_linearly(const layer *l, const shortcut_options *o, const shape *sources) {
    size_t floats = sources[0].c * sources[0].h * sources[0].w;
    shape in = o->source_input;
    if (l->layer_rule.shortcut_sums != SHORTCUT_SUMS_BY_SOURCE_INPUT || l->n_sources > 1 || l->nweights) return 0;
    return in.c == l->c && in.h == l->h && in.w == l->w && floats >= l->outputs;
}

static shortcut_sum sum_of(const layer *l, const network_state *state) {
    shortcut_sum s = {l->n_sources, l->outputs, l->outputs, l->sources, state->sources, NULL, l->weights_normalization};
    if (!l->nweights) return s;
    s.weights = l->weights;
    s.weights_step = l->outputs / (l->nweights / (l->n_sources + 1));
    return s;
}

static status forward_shortcut_layer(layer *l, const network_state *state) {
    shape own = {l->c, l->h, l->w};
    if (l->linear_sum) {
        size_t n = state->batch * l->outputs;
        for (size_t i = 0; i < n; ++i) l->output[i] = state->input[i] + state->sources[0][i];
    } else if (l->nweights || l->n_sources > 1) {
        shortcut_sum s = sum_of(l, state);
        shortcut_multilayer_cpu(state->input, state->batch, &s, l->output);
    } else {
        memcpy(l->output, state->input, state->batch * l->outputs * sizeof *l->output);
        shortcut_cpu(state->sources[0], l->sources[0], state->batch, own, l->alpha, l->beta, l->output);
    }
    return activate_output(l, l->output, (extent){state->batch, l->c, l->h * l->w}, NULL, state, 1);
}

/* Exact: the gradients of normalised weights, then those of the weights themselves. */
static status add_weighted_gradients(layer *l, const network_state *state) {
    shortcut_sum s = sum_of(l, state);
    int exact = l->weights_normalization != NORMALIZATION_NONE && l->layer_rule.gradient == LAYER_GRADIENT_EXACT;
    if (l->nweights && ensure_updates(&l->weight_updates, l->weights) != STATUS_OK) return STATUS_OUT_OF_MEMORY;
    float *gradients = l->nweights && exact ? make_array(l->nweights) : array_retain(l->weight_updates);
    if (l->nweights && !gradients) return STATUS_OUT_OF_MEMORY;
    shortcut_multilayer_gradients(state->input, l->delta, state->batch, &s, state->delta, state->source_deltas, gradients);
    if (l->nweights && exact) normalized_weight_gradients(&s, gradients, l->weight_updates);
    array_release(gradients);
    return STATUS_OK;
}

/* Exact: alpha where the source was added, 1 elsewhere; the forks take alpha everywhere. */
static status add_scaled_delta(const layer *l, const network_state *state) {
    size_t n = state->batch * l->outputs;
    if (!state->delta) return STATUS_OK;
    if (l->alpha == 1 || l->layer_rule.gradient == LAYER_GRADIENT_SIMPLIFIED) {
        axpy_cpu(n, l->alpha, l->delta, state->delta);
        return STATUS_OK;
    }
    float *scaled = make_dirty_array(n);
    if (!scaled) return STATUS_OUT_OF_MEMORY;
    memcpy(scaled, l->delta, n * sizeof *scaled);
    shortcut_cpu(state->sources[0], l->sources[0], state->batch, (shape){l->c, l->h, l->w}, l->alpha, 0, scaled);
    add_delta(l, state, scaled);
    array_release(scaled);
    return STATUS_OK;
}

static status backward_shortcut_layer(layer *l, const network_state *state) {
    shape own = {l->c, l->h, l->w};
    activation_delta(l, (extent){state->batch, l->c, l->h * l->w});
    if (l->nweights || l->n_sources > 1) return add_weighted_gradients(l, state);
    status s = add_scaled_delta(l, state);
    if (s == STATUS_OK && state->source_deltas[0])
        shortcut_cpu(l->delta, own, state->batch, l->sources[0], 1, l->beta, state->source_deltas[0]);
    return s;
}

static int is_ratio(size_t a, size_t b) {
    return a > b ? a % b == 0 : b % a == 0;
}

static status check(const shortcut_options *o, const shape *sources, size_t n) {
    if (!n) return fail(STATUS_SHAPE, "a shortcut needs a source");
    if (o->nweights && o->nweights != n + 1 && o->nweights != (n + 1) * o->c)
        return fail(STATUS_SHAPE, "%zu weights are neither one for each layer nor one for each channel", o->nweights);
    for (size_t i = 0; i < n; ++i) {
        shape from = sources[i];
        int same = from.h == o->h && from.w == o->w;
        if (!from.c || !from.h || !from.w)
            return fail(STATUS_SHAPE, "a source of %zu x %zu x %zu has no values", from.w, from.h, from.c);
        if (same) continue;
        if (n > 1 || o->nweights || !is_ratio(from.h, o->h) || !is_ratio(from.w, o->w) || from.h * o->w != from.w * o->h)
            return fail(STATUS_SHAPE, "%zu x %zu cannot be added to %zu x %zu", from.w, from.h, o->w, o->h);
    }
    return STATUS_OK;
}

status make_shortcut_layer(layer **made, const shortcut_options *o, const shape *sources, size_t n, const layer_rule *rule) {
    *made = NULL;
    layer *l = make_layer((shape){o->c, o->h, o->w}, (shape){o->c, o->h, o->w});
    if (!l) return STATUS_SHAPE;
    status s = check(o, sources, n);
    if (s == STATUS_OK) {
        l->sources = malloc(n * sizeof *sources);
        if (!l->sources || (o->nweights && !(l->weights = make_array(o->nweights))))
            s = fail(STATUS_OUT_OF_MEMORY, "no memory for a shortcut");
    }
    if (s != STATUS_OK) {
        free_layer(l);
        return s;
    }
    memcpy(l->sources, sources, n * sizeof *sources);
    for (size_t i = 0; i < o->nweights; ++i) l->weights[i] = 1;
    l->n_sources = n;
    l->nweights = o->nweights;
    l->weights_normalization = o->weights_normalization;
    l->alpha = o->alpha, l->beta = o->beta;
    l->activation = o->activation;
    l->layer_rule = *rule;
    l->linear_sum = sums_linearly(l, o, sources);
    l->forward = forward_shortcut_layer;
    l->backward = backward_shortcut_layer;
    if (l->nweights) l->update = update_weights;
    *made = l;
    return STATUS_OK;
}
