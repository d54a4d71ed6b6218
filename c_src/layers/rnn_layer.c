/* state = [state] + activation(input part) + activation(own part), then a third layer on it (AlexeyAB/darknet src/rnn_layer.c,
 * src/crnn_layer.c); with matrices or with convolutions. */
#include <string.h>

#include "../internal.h"
#include "../kernels/kernels.h"

static status step(layer *l, const moment *m) {
    layer *in = l->inner[RNN_INPUT_LAYER], *self = l->inner[RNN_SELF_LAYER], *out = l->inner[RNN_OUTPUT_LAYER];
    size_t n = m->sequences * l->hidden;
    status s = forward_inner(in, m->input, m);
    if (s == STATUS_OK) s = forward_inner(self, l->state, m);
    if (s != STATUS_OK) return s;
    if (!l->shortcut) memset(l->state, 0, n * sizeof(float));
    axpy_cpu(n, 1, in->output, l->state);
    axpy_cpu(n, 1, self->output, l->state);
    s = forward_inner(out, l->state, m);
    if (s == STATUS_OK) memcpy(m->output, out->output, m->sequences * l->outputs * sizeof(float));
    return s;
}

static status forward_rnn_layer(layer *l, const network_state *state) {
    return forward_steps(l, state, step);
}

/* What the output layer read, in sum where that is the sum of the two others again. */
static const float *read_by_output(const layer *l, const moment *m, float *sum) {
    size_t n = m->sequences * l->hidden;
    if (l->layer_rule.recurrent.rnn_reading == RNN_READING_STATE) return kept_state(l, m, m->step + 1);
    memcpy(sum, kept_output(l->inner[RNN_INPUT_LAYER], m), n * sizeof(float));
    axpy_cpu(n, 1, kept_output(l->inner[RNN_SELF_LAYER], m), sum);
    return sum;
}

/* carried (2, sequences, hidden): the delta of the state after this step, which later steps have begun; and one to begin. */
static status step_back(layer *l, const moment *m) {
    layer *in = l->inner[RNN_INPUT_LAYER], *self = l->inner[RNN_SELF_LAYER], *out = l->inner[RNN_OUTPUT_LAYER];
    size_t n = m->sequences * l->hidden;
    float *after = l->carried, *before = l->carried + n;
    status s = backward_inner(out, m->delta, read_by_output(l, m, before), m, after);
    if (s != STATUS_OK) return s;
    memcpy(m->delta, out->delta, m->sequences * l->outputs * sizeof(float)); /* the forks have one array for both */
    memset(before, 0, n * sizeof(float));
    s = backward_inner(self, after, kept_state(l, m, m->step), m, m->step ? before : NULL);
    if (s != STATUS_OK) return s;
    if (l->layer_rule.recurrent.rnn_passing == RNN_PASSING_SELF) memcpy(after, self->delta, n * sizeof(float));
    if (l->shortcut) axpy_cpu(n, 1, after, before);
    s = backward_inner(in, after, m->input, m, m->input_delta);
    memcpy(after, before, n * sizeof(float));
    return s;
}

static status backward_rnn_layer(layer *l, const network_state *state) {
    size_t n;
    status s = ready_to_go_back(l, state, 2, &n);
    if (s != STATUS_OK) return s;
    memset(l->carried, 0, 2 * n * sizeof(float));
    return backward_steps(l, state, step_back);
}

/* What both kinds have in common, of a layer with its inner ones made. */
static status finish(layer **made, layer *l, status s, int shortcut, const layer_rule *rule) {
    l->shortcut = shortcut;
    l->restarts = 1;
    return finish_layer(made, l, s, rule, forward_rnn_layer, backward_rnn_layer);
}

status make_rnn_layer(layer **made, const rnn_options *o, const batchnorm_rule *bn, const layer_rule *rule) {
    layer *l;
    *made = NULL;
    status s = make_recurrent_layer(&l, (shape){o->inputs, 1, 1}, (shape){o->outputs, 1, 1}, 3, 1, o->hidden);
    if (s != STATUS_OK) return s;
    int bn_inside = o->batch_normalize;
    layer **inner = l->inner;
    s = make_connected_layer(&inner[RNN_INPUT_LAYER], o->inputs, o->hidden, o->activation, bn_inside, bn, rule);
    if (s == STATUS_OK)
        s = make_connected_layer(&inner[RNN_SELF_LAYER], o->hidden, o->hidden, o->self_activation, bn_inside, bn, rule);
    if (s == STATUS_OK)
        s = make_connected_layer(&inner[RNN_OUTPUT_LAYER], o->hidden, o->outputs, o->activation, bn_inside, bn, rule);
    return finish(made, l, s, o->shortcut, rule);
}

status make_crnn_layer(layer **made, const convolutional_options *o, size_t hidden, int shortcut, const batchnorm_rule *bn,
                       const layer_rule *rule) {
    layer *l;
    convolutional_options given = *o;
    *made = NULL;
    if (rule->crnn_sides == SIDES_W_H) given.h = o->w, given.w = o->h;
    status s = make_recurrent_layer(&l, (shape){o->c, given.h, given.w}, (shape){o->n, given.h, given.w}, 3, 1, 0);
    if (s != STATUS_OK) return s;
    s = make_inner_convolution(l, RNN_INPUT_LAYER, &given, o->c, hidden, bn, rule);
    if (s == STATUS_OK) s = make_inner_convolution(l, RNN_SELF_LAYER, &given, hidden, hidden, bn, rule);
    if (s == STATUS_OK) s = make_inner_convolution(l, RNN_OUTPUT_LAYER, &given, hidden, o->n, bn, rule);
    if (s == STATUS_OK) l->hidden = l->inner[RNN_SELF_LAYER]->outputs;
    return finish(made, l, s, shortcut, rule);
}
