/* The last n inputs of each sequence as channels, the newest first (AlexeyAB/darknet src/conv_lstm_layer.c
 * forward_history_layer). The state is the last output. */
#include <string.h>

#include "../internal.h"

static status step(layer *l, const float *input, float *output, size_t sequences) {
    for (size_t b = 0; b < sequences; ++b) {
        float *newest = output + b * l->outputs;
        memcpy(newest + l->inputs, l->state + b * l->outputs, (l->outputs - l->inputs) * sizeof(float));
        memcpy(newest, input + b * l->inputs, l->inputs * sizeof(float));
    }
    memcpy(l->state, output, sequences * l->outputs * sizeof(float));
    return STATUS_OK;
}

/* In a batch of one time step the fork takes up nothing from the step before, and puts nothing by. */
static status alone(layer *l, const float *input, float *output, size_t sequences) {
    memset(output, 0, sequences * l->outputs * sizeof(float));
    for (size_t b = 0; b < sequences; ++b) memcpy(output + b * l->outputs, input + b * l->inputs, l->inputs * sizeof(float));
    return STATUS_OK;
}

static status forward_history_layer(layer *l, const network_state *state) {
    return forward_steps(l, state, state->steps > 1 ? step : alone);
}

status make_history_layer(layer **made, size_t c, size_t h, size_t w, size_t n) {
    size_t channels, factors[] = {c, n};
    *made = NULL;
    if (!product(&channels, factors, 2)) return fail(STATUS_SHAPE, "%zu inputs of %zu channels are too many", n, c);
    status s = make_recurrent_layer(made, (shape){c, h, w}, (shape){channels, h, w}, 0, 1, 0);
    if (s != STATUS_OK) return s;
    (*made)->hidden = (*made)->outputs;
    (*made)->forward = forward_history_layer;
    return STATUS_OK;
}
