/* z = logistic(wz state + uz input), r = logistic(wr state + ur input), h = candidate(wh (state * r) + uh input),
 * state = z * state + (1 - z) * h (pjreddie/darknet src/gru_layer.c, AlexeyAB/darknet src/gru_layer.c). */
#include <string.h>

#include "../internal.h"
#include "../kernels/kernels.h"

/* Gates are summed and activated in the outputs of the inner layers that read the state. */
static status step(layer *l, const moment *m) {
    layer **inner = l->inner;
    const arithmetic_rule *rule = &l->layer_rule.arithmetic;
    size_t n = m->sequences * l->hidden;
    status s = STATUS_OK;
    for (size_t i = GRU_WZ; s == STATUS_OK && i <= GRU_WR; ++i) s = forward_inner(inner[i], l->state, m);
    for (size_t i = GRU_UZ; s == STATUS_OK && i <= GRU_UH; ++i) s = forward_inner(inner[i], m->input, m);
    if (s != STATUS_OK) return s;
    float *z = inner[GRU_WZ]->output, *r = inner[GRU_WR]->output;
    axpy_cpu(n, 1, inner[GRU_UZ]->output, z);
    axpy_cpu(n, 1, inner[GRU_UR]->output, r);
    activate_array(z, n, ACTIVATION_LOGISTIC, rule, 0);
    activate_array(r, n, ACTIVATION_LOGISTIC, rule, 0);
    mul_cpu(n, l->state, r);
    s = forward_inner(inner[GRU_WH], r, m);
    if (s != STATUS_OK) return s;
    float *h = inner[GRU_WH]->output;
    axpy_cpu(n, 1, inner[GRU_UH]->output, h);
    activate_array(h, n, l->activation, rule, 0);
    weighted_sum_cpu(l->state, h, z, n, m->output);
    memcpy(l->state, m->output, n * sizeof(float));
    return STATUS_OK;
}

static status forward_gru_layer(layer *l, const network_state *state) {
    return forward_steps(l, state, step);
}

/* ---- backward: no fork's, whose own is empty on the CPU ----------------------------------------------------------------------- */

static void sum_gate(const layer *l, const moment *m, size_t w, size_t u, activation a, float *gate) {
    size_t n = m->sequences * l->hidden;
    memcpy(gate, kept_output(l->inner[w], m), n * sizeof(float));
    axpy_cpu(n, 1, kept_output(l->inner[u], m), gate);
    activate_array(gate, n, a, &l->layer_rule.arithmetic, 0);
}

/* A gate's delta goes into both of its layers. */
static status backward_gate(layer *l, const moment *m, size_t w, size_t u, const float *delta, const float *read, float *into) {
    status s = backward_inner(l->inner[w], delta, read, m, into);
    return s == STATUS_OK ? backward_inner(l->inner[u], delta, m->input, m, m->input_delta) : s;
}

/* carried (8, sequences, hidden): the delta of the state after this step that the next ones gave, then scratch */
static status step_back(layer *l, const moment *m) {
    size_t n = m->sequences * l->hidden;
    const arithmetic_rule *rule = &l->layer_rule.arithmetic;
    float *carried = l->carried, *z = carried + n, *r = z + n, *h = r + n, *z_delta = h + n, *h_delta = z_delta + n;
    float *forgot = h_delta + n, *forgot_delta = forgot + n;
    const float *state = kept_state(l, m, m->step);
    sum_gate(l, m, GRU_WZ, GRU_UZ, ACTIVATION_LOGISTIC, z);
    sum_gate(l, m, GRU_WR, GRU_UR, ACTIVATION_LOGISTIC, r);
    sum_gate(l, m, GRU_WH, GRU_UH, l->activation, h);
    axpy_cpu(n, 1, carried, m->delta);
    weighted_sum_gradients(state, h, z, n, m->delta, carried, h_delta, z_delta);
    gradient_array(h, NULL, n, l->activation, rule, h_delta);
    gradient_array(z, NULL, n, ACTIVATION_LOGISTIC, rule, z_delta);
    memcpy(forgot, r, n * sizeof(float));
    mul_cpu(n, state, forgot);
    memset(forgot_delta, 0, n * sizeof(float));
    status s = backward_gate(l, m, GRU_WH, GRU_UH, h_delta, forgot, forgot_delta);
    if (s == STATUS_OK) s = backward_gate(l, m, GRU_WZ, GRU_UZ, z_delta, state, carried);
    if (s != STATUS_OK) return s;
    memcpy(h_delta, forgot_delta, n * sizeof(float));
    mul_cpu(n, r, h_delta);
    axpy_cpu(n, 1, h_delta, carried);
    mul_cpu(n, state, forgot_delta);
    gradient_array(r, NULL, n, ACTIVATION_LOGISTIC, rule, forgot_delta);
    return backward_gate(l, m, GRU_WR, GRU_UR, forgot_delta, state, carried);
}

static status backward_gru_layer(layer *l, const network_state *state) {
    if (!l->layer_rule.recurrent.gru_backward) return STATUS_OK;
    size_t n;
    status s = ready_to_go_back(l, state, 8, &n);
    if (s != STATUS_OK) return s;
    memset(l->carried, 0, n * sizeof(float));
    return backward_steps(l, state, step_back);
}

status make_gru_layer(layer **made, size_t inputs, size_t outputs, activation candidate, int batch_normalize,
                      const batchnorm_rule *bn, const layer_rule *rule) {
    layer *l;
    *made = NULL;
    status s = make_recurrent_layer(&l, (shape){inputs, 1, 1}, (shape){outputs, 1, 1}, GRU_UH + 1, 1, outputs);
    if (s != STATUS_OK) return s;
    l->activation = candidate;
    for (size_t i = GRU_WZ; s == STATUS_OK && i <= GRU_UH; ++i)
        s = make_connected_layer(&l->inner[i], i <= GRU_WH ? outputs : inputs, outputs, ACTIVATION_LINEAR, batch_normalize, bn,
                                 rule);
    return finish_layer(made, l, s, rule, forward_gru_layer, backward_gru_layer);
}
