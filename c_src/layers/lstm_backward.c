/* Backward of both LSTMs (AlexeyAB/darknet src/lstm_layer.c, src/conv_lstm_layer.c): the gates are computed again from what their
 * layers gave; deltas of the states go into l->delta of the step before, those of the cell along `carried`. */
#include <string.h>

#include "../internal.h"
#include "../kernels/kernels.h"

enum { ROOM = 10 }; /* arrays of (sequences, hidden) in l->carried */

typedef struct {
    const recurrent_rule *rule;
    const float *state, *before; /* state and cell that the step began with */
    float *carried;              /* delta of the cell after this step that later ones gave; then of the one before */
    float *f, *i, *g, *o, *cell, *tanh_cell, *cell_delta, *delta, *passed, *zeros;
    float *state_delta;    /* of the step before, or NULL */
    float *passed_by_cell; /* what peepholes pass on goes to `passed`, or nowhere: NULL */
    size_t n;
} scene;

static void sum_gate(const layer *l, const moment *m, size_t w, size_t u, size_t v, activation a, float *gate) {
    size_t n = m->sequences * l->hidden;
    memcpy(gate, kept_output(l->inner[w], m), n * sizeof(float));
    axpy_cpu(n, 1, kept_output(l->inner[u], m), gate);
    if (v < l->n_inner && l->inner[v]) axpy_cpu(n, 1, kept_output(l->inner[v], m), gate);
    activate_array(gate, n, a, &l->layer_rule.arithmetic, 0);
}

/* The cell that the step computed, or that it kept in its limit. */
static void set_cell(const layer *l, const moment *m, scene *s) {
    if (s->rule->conv_lstm_cell == CONV_LSTM_CELL_KEPT || l->limit == 0) {
        memcpy(s->cell, kept_cell(l, m, m->step + 1), s->n * sizeof(float));
        return;
    }
    memcpy(s->cell, s->before, s->n * sizeof(float));
    memcpy(s->delta, s->i, s->n * sizeof(float));
    mul_cpu(s->n, s->g, s->delta);
    mul_cpu(s->n, s->f, s->cell);
    axpy_cpu(s->n, 1, s->delta, s->cell);
    constrain_gradient(s->n, l->limit, s->cell, s->carried);
}

static scene set_scene(layer *l, const moment *m) {
    size_t n = m->sequences * l->hidden;
    scene s = {.rule = &l->layer_rule.recurrent, .n = n, .carried = l->cell_delta};
    float **rooms[] = {&s.f, &s.i, &s.g, &s.o, &s.cell, &s.tanh_cell, &s.cell_delta, &s.delta, &s.passed, &s.zeros};
    for (size_t k = 0; k < sizeof rooms / sizeof *rooms; ++k) *rooms[k] = l->carried + k * n;
    int own = m->step == 0 && s.rule->lstm_before == LSTM_BEFORE_FIRST_STEP;
    s.state = kept_state(l, m, m->step + (own ? 1 : 0)), s.before = kept_cell(l, m, m->step + (own ? 1 : 0));
    if (own && m->steps == 1) { /* the fork's arrays are zeros until a step puts something there */
        memset(s.zeros, 0, n * sizeof(float));
        s.state = s.before = s.zeros;
    }
    sum_gate(l, m, LSTM_WF, LSTM_UF, LSTM_VF, ACTIVATION_LOGISTIC, s.f);
    sum_gate(l, m, LSTM_WI, LSTM_UI, LSTM_VI, ACTIVATION_LOGISTIC, s.i);
    sum_gate(l, m, LSTM_WG, LSTM_UG, l->n_inner, ACTIVATION_TANH, s.g);
    sum_gate(l, m, LSTM_WO, LSTM_UO, LSTM_VO, ACTIVATION_LOGISTIC, s.o);
    set_cell(l, m, &s);
    memcpy(s.tanh_cell, s.cell, n * sizeof(float));
    activate_array(s.tanh_cell, n, ACTIVATION_TANH, &l->layer_rule.arithmetic, 0);
    return s;
}

/* s->delta, of a gate's sum, goes into its layers: v reads a cell, w the state, u the input. */
static status backward_gate(layer *l, const moment *m, const scene *s, size_t w, size_t u, size_t v, const float *read_by_v) {
    status done = STATUS_OK;
    if (v < l->n_inner && l->inner[v]) done = backward_inner(l->inner[v], s->delta, read_by_v, m, s->passed_by_cell);
    if (done == STATUS_OK) done = backward_inner(l->inner[w], s->delta, s->state, m, s->state_delta);
    return done == STATUS_OK ? backward_inner(l->inner[u], s->delta, m->input, m, m->input_delta) : done;
}

/* s->delta = delta * factor * derivative of the gate at y */
static void set_delta(const layer *l, const scene *s, const float *delta, const float *factor, const float *y, activation a) {
    memcpy(s->delta, delta, s->n * sizeof(float));
    mul_cpu(s->n, factor, s->delta);
    gradient_array(y, NULL, s->n, a, &l->layer_rule.arithmetic, s->delta);
}

static status backward_output_gate(layer *l, const moment *m, const scene *s) {
    memset(s->passed, 0, s->n * sizeof(float));
    set_delta(l, s, m->delta, s->o, s->tanh_cell, ACTIVATION_TANH);
    memcpy(s->cell_delta, s->delta, s->n * sizeof(float));
    axpy_cpu(s->n, 1, s->carried, s->cell_delta);
    set_delta(l, s, m->delta, s->tanh_cell, s->o, ACTIVATION_LOGISTIC);
    status done = backward_gate(l, m, s, LSTM_WO, LSTM_UO, LSTM_VO, s->cell);
    if (s->passed_by_cell) axpy_cpu(s->n, 1, s->passed, s->cell_delta);
    memset(s->passed, 0, s->n * sizeof(float));
    return done;
}

static status backward_gates(layer *l, const moment *m, int passes) {
    scene s = set_scene(l, m);
    if (passes && m->step) s.state_delta = m->delta - s.n;
    if (passes) s.passed_by_cell = s.passed;
    status done = backward_output_gate(l, m, &s);
    if (done != STATUS_OK) return done;
    set_delta(l, &s, s.cell_delta, s.i, s.g, ACTIVATION_TANH);
    done = backward_gate(l, m, &s, LSTM_WG, LSTM_UG, l->n_inner, NULL);
    if (done != STATUS_OK) return done;
    set_delta(l, &s, s.cell_delta, s.g, s.i, ACTIVATION_LOGISTIC);
    done = backward_gate(l, m, &s, LSTM_WI, LSTM_UI, LSTM_VI, s.before);
    if (done != STATUS_OK) return done;
    set_delta(l, &s, s.cell_delta, s.before, s.f, ACTIVATION_LOGISTIC);
    done = backward_gate(l, m, &s, LSTM_WF, LSTM_UF, LSTM_VF, s.before);
    memcpy(s.carried, s.cell_delta, s.n * sizeof(float));
    mul_cpu(s.n, s.f, s.carried);
    if (passes) axpy_cpu(s.n, 1, s.passed, s.carried);
    return done;
}

static status step_back(layer *l, const moment *m) {
    return backward_gates(l, m, 1);
}

static status conv_step_back(layer *l, const moment *m) {
    return backward_gates(l, m, l->layer_rule.recurrent.conv_lstm_passes_state);
}

static status backward(layer *l, const network_state *state, time_step step) {
    const recurrent_rule *rule = &l->layer_rule.recurrent;
    size_t n;
    status s = ready_to_go_back(l, state, ROOM, &n);
    if (s == STATUS_OK) s = ensure_array(&l->cell_delta, n);
    if (s != STATUS_OK) return s;
    if (!rule->lstm_keeps_cell_delta) memset(l->cell_delta, 0, n * sizeof(float));
    s = backward_steps(l, state, step);
    if (s != STATUS_OK || rule->lstm_after == LSTM_AFTER_LAST_STEP || l->sequences * l->hidden != n) return s;
    moment m = {.state = state, .sequences = l->sequences};
    memcpy(l->state, kept_state(l, &m, 1), n * sizeof(float));
    memcpy(l->cell, kept_cell(l, &m, 1), n * sizeof(float));
    return s;
}

status backward_lstm_layer(layer *l, const network_state *state) {
    return backward(l, state, step_back);
}

status backward_conv_lstm_layer(layer *l, const network_state *state) {
    return backward(l, state, conv_step_back);
}
