/* The last n inputs of each sequence as channels, the newest first (AlexeyAB/darknet src/conv_lstm_layer.c
 * forward_history_layer). The state is the last output. */
#include <string.h>

#include "../internal.h"

static status step(layer *l, const moment *m) {
    for (size_t b = 0; b < m->sequences; ++b) {
        float *newest = m->output + b * l->outputs;
        memcpy(newest + l->inputs, l->state + b * l->outputs, (l->outputs - l->inputs) * sizeof(float));
        memcpy(newest, m->input + b * l->inputs, l->inputs * sizeof(float));
    }
    memcpy(l->state, m->output, m->sequences * l->outputs * sizeof(float));
    return STATUS_OK;
}

/* In a batch of one time step the fork takes up nothing from the step before, and puts nothing by. */
static status alone(layer *l, const moment *m) {
    memset(m->output, 0, m->sequences * l->outputs * sizeof(float));
    for (size_t b = 0; b < m->sequences; ++b)
        memcpy(m->output + b * l->outputs, m->input + b * l->inputs, l->inputs * sizeof(float));
    return STATUS_OK;
}

static status forward_history_layer(layer *l, const network_state *state) {
    return forward_steps(l, state, state->steps > 1 ? step : alone);
}

/* The input of each step stands in the outputs of that step and of later ones, where the fork does not look for it. */
static status step_back(layer *l, const moment *m) {
    size_t held = l->layer_rule.recurrent.history_passes_all ? l->outputs / l->inputs : 1;
    for (size_t age = 0; m->input_delta && age < held && m->step + age < m->steps; ++age)
        for (size_t b = 0; b < m->sequences; ++b)
            axpy_cpu(l->inputs, 1, m->delta + (age * m->sequences + b) * l->outputs + age * l->inputs,
                     m->input_delta + b * l->inputs);
    return STATUS_OK;
}

static status backward_history_layer(layer *l, const network_state *state) {
    size_t n;
    status s = ready_to_go_back(l, state, 0, &n);
    return s == STATUS_OK ? backward_steps(l, state, step_back) : s;
}

status make_history_layer(layer **made, size_t c, size_t h, size_t w, size_t n, const layer_rule *rule) {
    size_t channels, factors[] = {c, n};
    *made = NULL;
    if (!product(&channels, factors, 2)) return fail(STATUS_SHAPE, "%zu inputs of %zu channels are too many", n, c);
    status s = make_recurrent_layer(made, (shape){c, h, w}, (shape){channels, h, w}, 0, 1, 0);
    if (s != STATUS_OK) return s;
    (*made)->hidden = (*made)->outputs;
    return finish_layer(made, *made, STATUS_OK, rule, forward_history_layer, backward_history_layer);
}
