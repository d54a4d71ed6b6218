/* What recurrent layers have in common: inner layers, a state that outlives the forward, and the walk over the time steps. */
#include <stdlib.h>
#include <string.h>

#include "../internal.h"

status reset_recurrent_layer(layer *l, size_t sequences) {
    size_t n, factors[] = {sequences, l->hidden};
    float **arrays[] = {&l->state, &l->cell, &l->cell_delta};
    l->sequences = 0;
    if (!sequences) return STATUS_OK;
    if (!product(&n, factors, 2)) return fail(STATUS_OUT_OF_MEMORY, "a state of %zu sequences is too large", sequences);
    for (size_t i = 0; i < (l->n_states > 1 ? 3 : 1); ++i) {
        if (ensure_array(arrays[i], n) != STATUS_OK) return STATUS_OUT_OF_MEMORY;
        memset(*arrays[i], 0, n * sizeof(float));
    }
    l->sequences = sequences;
    return STATUS_OK;
}

/* Everything about a batch that can be wrong. */
static status count_sequences(layer *l, moment *m) {
    const network_state *state = m->state;
    if (state->batch % m->steps)
        return fail(STATUS_SHAPE,
                    "expected a batch that divides into %zu time steps (all sequences of one step, then the next), got %zu rows",
                    m->steps, state->batch);
    m->sequences = state->batch / m->steps;
    if (!l->sequences || (state->train && l->restarts)) return STATUS_OK;
    if (l->sequences == m->sequences) return STATUS_OK;
    return fail(STATUS_STATE, "expected %zu sequences, as many as the state is of, got %zu; reset the state before other sequences",
                l->sequences, m->sequences);
}

static status check_statistics(const layer *l, const moment *m) {
    status s = STATUS_OK;
    for (size_t i = 0; s == STATUS_OK && i < l->n_inner; ++i) {
        const layer *batchnorm = l->inner[i] ? l->inner[i]->batchnorm : NULL;
        if (batchnorm) s = check_batchnorm_layer(batchnorm, m->sequences * (batchnorm->outputs / batchnorm->c), m->state);
    }
    return s;
}

/* All that can go wrong before the first step, and the state that it starts with. */
static status start(layer *l, moment *m) {
    status s = count_sequences(l, m);
    if (s == STATUS_OK) s = check_statistics(l, m);
    if (s == STATUS_OK && m->state->cache) s = make_kept(l, m);
    if (s == STATUS_OK && (!l->sequences || (m->state->train && l->restarts))) s = reset_recurrent_layer(l, m->sequences);
    if (s == STATUS_OK && m->state->train && l->n_inner && l->delta && l->delta_batch == m->state->batch)
        memset(l->delta, 0, m->state->batch * l->outputs * sizeof(float));
    return s;
}

status forward_steps(layer *l, const network_state *state, time_step step) {
    moment m = {.state = state, .steps = state->steps ? state->steps : 1};
    l->kept_steps = 0;
    status s = start(l, &m);
    for (; s == STATUS_OK && m.step < m.steps; ++m.step) {
        m.input = state->input + m.step * m.sequences * l->inputs;
        m.output = l->output + m.step * m.sequences * l->outputs;
        keep_state(l, &m);
        s = step(l, &m);
    }
    if (s != STATUS_OK) return s;
    keep_state(l, &m);
    if (state->cache) l->kept_steps = m.steps;
    return state->train && l->restarts ? reset_recurrent_layer(l, m.sequences) : STATUS_OK;
}

status forward_inner(layer *inner, const float *input, const moment *m) {
    network_state inside = {.input = input, .batch = m->sequences, .train = m->state->train, .cache = m->state->cache};
    inside.allow_degenerate = m->state->allow_degenerate, inside.workspace = m->state->workspace;
    status s = forward_layer(inner, &inside);
    return s == STATUS_OK ? keep_inner(inner, m) : s;
}

status update_inner_layers(layer *l, const update_options *o) {
    status s = STATUS_OK;
    for (size_t i = 0; s == STATUS_OK && i < l->n_inner; ++i)
        if (l->inner[i]) s = update_layer(l->inner[i], o);
    return s;
}

status make_recurrent_layer(layer **made, shape in, shape out, size_t n_inner, size_t n_states, size_t hidden) {
    *made = NULL;
    layer *l = make_layer(in, out);
    if (!l) return STATUS_SHAPE;
    l->inner = calloc(n_inner + 1, sizeof(layer *)); /* never of no bytes */
    if (!l->inner) {
        free_layer(l);
        return fail(STATUS_OUT_OF_MEMORY, "no memory for a recurrent layer");
    }
    l->n_inner = n_inner, l->n_states = n_states, l->hidden = hidden;
    *made = l;
    return STATUS_OK;
}

status make_inner_convolution(layer *l, size_t i, const convolutional_options *o, size_t c, size_t n, const batchnorm_rule *bn,
                              const layer_rule *rule) {
    convolutional_options inner = *o;
    inner.c = c, inner.n = n;
    status s = make_convolutional_layer(&l->inner[i], &inner, bn, rule);
    if (s == STATUS_OK && !rule->recurrent.inner_convolutions_learn) l->inner[i]->learning_rate_scale = 0;
    if (s != STATUS_OK || (l->inner[i]->out_h == o->h && l->inner[i]->out_w == o->w)) return s;
    return fail(STATUS_SHAPE, "its convolutions have to keep the size, but make %zu x %zu of %zu x %zu; set stride=1 and pad=1",
                l->inner[i]->out_w, l->inner[i]->out_h, o->w, o->h);
}

status finish_layer(layer **made, layer *l, status s, const layer_rule *rule, layer_pass forward, layer_pass backward) {
    *made = s == STATUS_OK ? l : NULL;
    if (s != STATUS_OK) {
        free_layer(l);
        return s;
    }
    l->layer_rule = *rule;
    l->forward = forward;
    l->backward = backward;
    l->update = update_inner_layers;
    return s;
}
