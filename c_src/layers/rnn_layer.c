/* state = [state] + activation(input part) + activation(own part), then a third layer on it (AlexeyAB/darknet src/rnn_layer.c,
 * src/crnn_layer.c); with matrices or with convolutions. */
#include <string.h>

#include "../internal.h"
#include "../kernels/kernels.h"

static status step(layer *l, const float *input, float *output, size_t sequences) {
    layer *in = l->inner[RNN_INPUT_LAYER], *self = l->inner[RNN_SELF_LAYER], *out = l->inner[RNN_OUTPUT_LAYER];
    size_t n = sequences * l->hidden;
    status s = forward_inner(in, input, sequences);
    if (s == STATUS_OK) s = forward_inner(self, l->state, sequences);
    if (s != STATUS_OK) return s;
    if (!l->shortcut) memset(l->state, 0, n * sizeof(float));
    axpy_cpu(n, 1, in->output, l->state);
    axpy_cpu(n, 1, self->output, l->state);
    s = forward_inner(out, l->state, sequences);
    if (s == STATUS_OK) memcpy(output, out->output, sequences * l->outputs * sizeof(float));
    return s;
}

static status forward_rnn_layer(layer *l, const network_state *state) {
    return forward_steps(l, state, step);
}

status make_rnn_layer(layer **made, const rnn_options *o, const batchnorm_rule *bn, const layer_rule *rule) {
    layer *l;
    *made = NULL;
    status s = make_recurrent_layer(&l, (shape){o->inputs, 1, 1}, (shape){o->outputs, 1, 1}, 3, 1, o->hidden);
    if (s != STATUS_OK) return s;
    int bn_inside = o->batch_normalize;
    layer **inner = l->inner;
    l->shortcut = o->shortcut;
    s = make_connected_layer(&inner[RNN_INPUT_LAYER], o->inputs, o->hidden, o->activation, bn_inside, bn, rule);
    if (s == STATUS_OK)
        s = make_connected_layer(&inner[RNN_SELF_LAYER], o->hidden, o->hidden, o->self_activation, bn_inside, bn, rule);
    if (s == STATUS_OK)
        s = make_connected_layer(&inner[RNN_OUTPUT_LAYER], o->hidden, o->outputs, o->activation, bn_inside, bn, rule);
    return finish_layer(made, l, s, rule, forward_rnn_layer);
}

status make_crnn_layer(layer **made, const convolutional_options *o, size_t hidden, int shortcut, const batchnorm_rule *bn,
                       const layer_rule *rule) {
    layer *l;
    convolutional_options given = *o;
    *made = NULL;
    if (rule->crnn_sides == SIDES_W_H) given.h = o->w, given.w = o->h;
    status s = make_recurrent_layer(&l, (shape){o->c, given.h, given.w}, (shape){o->n, given.h, given.w}, 3, 1, 0);
    if (s != STATUS_OK) return s;
    l->shortcut = shortcut;
    s = make_inner_convolution(l, RNN_INPUT_LAYER, &given, o->c, hidden, bn, rule);
    if (s == STATUS_OK) s = make_inner_convolution(l, RNN_SELF_LAYER, &given, hidden, hidden, bn, rule);
    if (s == STATUS_OK) s = make_inner_convolution(l, RNN_OUTPUT_LAYER, &given, hidden, o->n, bn, rule);
    if (s == STATUS_OK) l->hidden = l->inner[RNN_SELF_LAYER]->outputs;
    return finish_layer(made, l, s, rule, forward_rnn_layer);
}
