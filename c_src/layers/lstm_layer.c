/* f, i, o = logistic(w state + u input [+ v cell]), g = tanh(wg state + ug input), cell = f * cell + i * g,
 * state = o * tanh(cell) (AlexeyAB/darknet src/lstm_layer.c, src/conv_lstm_layer.c); with matrices or with convolutions. */
#include <string.h>

#include "../internal.h"
#include "../kernels/kernels.h"

/* w + u, then + v where there is one, activated, in the output of w. */
static float *gate(layer *l, size_t w, size_t u, const layer *v, size_t n, activation a) {
    float *sum = l->inner[w]->output;
    axpy_cpu(n, 1, l->inner[u]->output, sum);
    if (v) axpy_cpu(n, 1, v->output, sum);
    activate_array(sum, n, a, &l->layer_rule.arithmetic, 0);
    return sum;
}

static status forward_gates(layer *l, const moment *m) {
    status s = STATUS_OK;
    for (size_t i = LSTM_VF; s == STATUS_OK && i <= LSTM_VI; ++i)
        if (l->inner[i]) s = forward_inner(l->inner[i], l->cell, m);
    for (size_t i = LSTM_WF; s == STATUS_OK && i <= LSTM_WO; ++i) s = forward_inner(l->inner[i], l->state, m);
    for (size_t i = LSTM_UF; s == STATUS_OK && i <= LSTM_UO; ++i) s = forward_inner(l->inner[i], m->input, m);
    return s;
}

static status move_on(layer *l, const moment *m, size_t n) {
    layer **inner = l->inner;
    status s = forward_gates(l, m);
    if (s != STATUS_OK) return s;
    const float *f = gate(l, LSTM_WF, LSTM_UF, inner[LSTM_VF], n, ACTIVATION_LOGISTIC);
    float *i = gate(l, LSTM_WI, LSTM_UI, inner[LSTM_VI], n, ACTIVATION_LOGISTIC);
    const float *g = gate(l, LSTM_WG, LSTM_UG, NULL, n, ACTIVATION_TANH);
    mul_cpu(n, g, i);
    mul_cpu(n, f, l->cell);
    axpy_cpu(n, 1, i, l->cell);
    if (inner[LSTM_VO]) s = forward_inner(inner[LSTM_VO], l->cell, m); /* of the new cell */
    if (s != STATUS_OK) return s;
    const float *o = gate(l, LSTM_WO, LSTM_UO, inner[LSTM_VO], n, ACTIVATION_LOGISTIC);
    memcpy(l->state, l->cell, n * sizeof(float));
    activate_array(l->state, n, ACTIVATION_TANH, &l->layer_rule.arithmetic, 0);
    mul_cpu(n, o, l->state);
    return STATUS_OK;
}

static status step(layer *l, const moment *m) {
    size_t n = m->sequences * l->hidden;
    status s = move_on(l, m, n);
    if (s == STATUS_OK) memcpy(m->output, l->state, n * sizeof(float));
    return s;
}

static status forward_lstm_layer(layer *l, const network_state *state) {
    return forward_steps(l, state, step);
}

static status constrained_step(layer *l, const moment *m) {
    size_t n = m->sequences * l->hidden;
    status s = move_on(l, m, n);
    if (s != STATUS_OK) return s;
    if (l->limit != 0) constrain_cpu(n, l->limit, l->cell);
    fix_nan_and_inf_cpu(l->cell, n);
    fix_nan_and_inf_cpu(l->state, n);
    memcpy(m->output, l->state, n * sizeof(float));
    return STATUS_OK;
}

static status forward_conv_lstm_layer(layer *l, const network_state *state) {
    size_t steps = state->steps ? state->steps : 1;
    l->limit = l->state_constrain < 0 ? (float)steps * 32 : l->state_constrain;
    return forward_steps(l, state, constrained_step);
}

status make_lstm_layer(layer **made, size_t inputs, size_t outputs, int batch_normalize, const batchnorm_rule *bn,
                       const layer_rule *rule) {
    layer *l;
    *made = NULL;
    status s = make_recurrent_layer(&l, (shape){inputs, 1, 1}, (shape){outputs, 1, 1}, LSTM_VO + 1, 2, outputs);
    if (s != STATUS_OK) return s;
    for (size_t i = LSTM_WF; s == STATUS_OK && i <= LSTM_UO; ++i)
        s = make_connected_layer(&l->inner[i], i <= LSTM_WO ? outputs : inputs, outputs, ACTIVATION_LINEAR, batch_normalize, bn,
                                 rule);
    return finish_layer(made, l, s, rule, forward_lstm_layer, backward_lstm_layer);
}

status make_conv_lstm_layer(layer **made, const convolutional_options *o, int peephole, float state_constrain,
                            const batchnorm_rule *bn, const layer_rule *rule) {
    layer *l;
    *made = NULL;
    status s = make_recurrent_layer(&l, (shape){o->c, o->h, o->w}, (shape){o->n, o->h, o->w}, LSTM_VO + 1, 2, 0);
    if (s != STATUS_OK) return s;
    l->hidden = l->outputs;
    l->state_constrain = state_constrain;
    for (size_t i = LSTM_WF; s == STATUS_OK && i <= (size_t)(peephole ? LSTM_VO : LSTM_UO); ++i)
        s = make_inner_convolution(l, i, o, i >= LSTM_UF && i <= LSTM_UO ? o->c : o->n, o->n, bn, rule);
    return finish_layer(made, l, s, rule, forward_conv_lstm_layer, backward_conv_lstm_layer);
}
