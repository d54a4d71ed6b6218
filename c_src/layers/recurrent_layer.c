/* What recurrent layers have in common: inner layers, a state that outlives the forward, and the walk over the time steps. */
#include <stdlib.h>
#include <string.h>

#include "../internal.h"

status reset_recurrent_layer(layer *l, size_t sequences) {
    size_t n, factors[] = {sequences, l->hidden};
    float **arrays[] = {&l->state, &l->cell};
    l->sequences = 0;
    if (!sequences) return STATUS_OK;
    if (!product(&n, factors, 2)) return fail(STATUS_OUT_OF_MEMORY, "a state of %zu sequences is too large", sequences);
    for (size_t i = 0; i < l->n_states; ++i) {
        if (ensure_array(arrays[i], n) != STATUS_OK) return STATUS_OUT_OF_MEMORY;
        memset(*arrays[i], 0, n * sizeof(float));
    }
    l->sequences = sequences;
    return STATUS_OK;
}

/* Everything about a batch that can be wrong. */
static status count_sequences(layer *l, const network_state *state, size_t *sequences) {
    size_t steps = state->steps ? state->steps : 1;
    if (state->train) return fail(STATUS_UNSUPPORTED, "a recurrent layer in training is not computed by this package");
    if (state->batch % steps)
        return fail(STATUS_SHAPE,
                    "expected a batch that divides into %zu time steps (all sequences of one step, then the next), got %zu rows",
                    steps, state->batch);
    *sequences = state->batch / steps;
    if (!l->sequences) return reset_recurrent_layer(l, *sequences);
    if (l->sequences == *sequences) return STATUS_OK;
    return fail(STATUS_STATE, "expected %zu sequences, as many as the state is of, got %zu; reset the state before other sequences",
                l->sequences, *sequences);
}

status forward_steps(layer *l, const network_state *state, time_step step) {
    size_t sequences;
    status s = count_sequences(l, state, &sequences);
    for (size_t row = 0; s == STATUS_OK && row < state->batch; row += sequences)
        s = step(l, state->input + row * l->inputs, l->output + row * l->outputs, sequences);
    return s;
}

status forward_inner(layer *inner, const float *input, size_t sequences) {
    return forward_layer(inner, &(network_state){.input = input, .batch = sequences});
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
    if (s != STATUS_OK || (l->inner[i]->out_h == o->h && l->inner[i]->out_w == o->w)) return s;
    return fail(STATUS_SHAPE, "its convolutions have to keep the size, but make %zu x %zu of %zu x %zu; set stride=1 and pad=1",
                l->inner[i]->out_w, l->inner[i]->out_h, o->w, o->h);
}

status finish_layer(layer **made, layer *l, status s, const layer_rule *rule, status (*forward)(layer *, const network_state *)) {
    *made = s == STATUS_OK ? l : NULL;
    if (s != STATUS_OK) {
        free_layer(l);
        return s;
    }
    l->layer_rule = *rule;
    l->forward = forward;
    return s;
}
