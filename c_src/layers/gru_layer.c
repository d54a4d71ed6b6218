/* z = logistic(wz state + uz input), r = logistic(wr state + ur input), h = candidate(wh (state * r) + uh input),
 * state = z * state + (1 - z) * h (pjreddie/darknet src/gru_layer.c, AlexeyAB/darknet src/gru_layer.c). */
#include <string.h>

#include "../internal.h"
#include "../kernels/kernels.h"

/* Gates are summed and activated in the outputs of the inner layers that read the state. */
static status step(layer *l, const float *input, float *output, size_t sequences) {
    layer **inner = l->inner;
    const arithmetic_rule *rule = &l->layer_rule.arithmetic;
    size_t n = sequences * l->hidden;
    status s = STATUS_OK;
    for (size_t i = GRU_WZ; s == STATUS_OK && i <= GRU_WR; ++i) s = forward_inner(inner[i], l->state, sequences);
    for (size_t i = GRU_UZ; s == STATUS_OK && i <= GRU_UH; ++i) s = forward_inner(inner[i], input, sequences);
    if (s != STATUS_OK) return s;
    float *z = inner[GRU_WZ]->output, *r = inner[GRU_WR]->output;
    axpy_cpu(n, 1, inner[GRU_UZ]->output, z);
    axpy_cpu(n, 1, inner[GRU_UR]->output, r);
    activate_array(z, n, ACTIVATION_LOGISTIC, rule, 0);
    activate_array(r, n, ACTIVATION_LOGISTIC, rule, 0);
    mul_cpu(n, l->state, r);
    s = forward_inner(inner[GRU_WH], r, sequences);
    if (s != STATUS_OK) return s;
    float *h = inner[GRU_WH]->output;
    axpy_cpu(n, 1, inner[GRU_UH]->output, h);
    activate_array(h, n, l->activation, rule, 0);
    weighted_sum_cpu(l->state, h, z, n, output);
    memcpy(l->state, output, n * sizeof(float));
    return STATUS_OK;
}

static status forward_gru_layer(layer *l, const network_state *state) {
    return forward_steps(l, state, step);
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
    return finish_layer(made, l, s, rule, forward_gru_layer);
}
