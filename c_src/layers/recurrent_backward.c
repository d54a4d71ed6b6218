/* Backward through time: what each step of a forward leaves for it, and the walk back. A layer keeps (steps + 1) times its state and
 * cell; each of its inner layers keeps, step after step, what its own backward will look at. */
#include <string.h>

#include "../internal.h"

/* ---- the layer's own state -------------------------------------------------------------------------------------------------- */

static size_t state_floats(const layer *l, const moment *m) {
    return m->sequences * l->hidden;
}

const float *kept_state(const layer *l, const moment *m, size_t slot) {
    return l->kept + slot * l->n_states * state_floats(l, m);
}

const float *kept_cell(const layer *l, const moment *m, size_t slot) {
    return kept_state(l, m, slot) + state_floats(l, m);
}

/* Into the slot of the number of steps done. */
void keep_state(layer *l, const moment *m) {
    size_t n = state_floats(l, m);
    if (!m->state->cache || !l->n_inner) return;
    float *slot = l->kept + m->step * l->n_states * n;
    memcpy(slot, l->state, n * sizeof(float));
    if (l->n_states > 1) memcpy(slot + n, l->cell, n * sizeof(float));
}

/* ---- inner layers ----------------------------------------------------------------------------------------------------------- */

typedef struct {
    float *array;
    size_t floats;
    int shared; /* the last step's may stand for that of each */
} part;

/* Whether mean and variance stay those of the last step: then x_norm, which stays each step's own, is not made of them and x. */
static int keeps_x_norm(const layer *inner) {
    return inner->layer_rule.recurrent.step_statistics == STEP_STATISTICS_LAST;
}

/* In the order in which they are kept; arrays may not be there yet. */
static size_t parts_of(const layer *inner, const moment *m, int train, part parts[6]) {
    size_t n = m->sequences * inner->outputs, count = 0;
    const layer *batchnorm = inner->batchnorm;
    parts[count++] = (part){inner->output, n, 0};
    if (needs_activation_input(inner->activation)) parts[count++] = (part){inner->activation_input, n, 1};
    if (!batchnorm) return count;
    parts[count++] = (part){batchnorm->x, n, 0};
    if (!train) return count;
    if (keeps_x_norm(inner)) parts[count++] = (part){batchnorm->x_norm, n, 0};
    parts[count++] = (part){batchnorm->mean, batchnorm->c, 1};
    parts[count++] = (part){batchnorm->variance, batchnorm->c, 1};
    return count;
}

static size_t record_floats(const part *parts, size_t count) {
    size_t floats = 0;
    for (size_t i = 0; i < count; ++i) floats += parts[i].floats;
    return floats;
}

static int was_trained(const layer *inner) {
    return inner->batchnorm && inner->batchnorm->cached == CACHED_TRAINING;
}

status keep_inner(layer *inner, const moment *m) {
    part parts[6];
    if (!m->state->cache) return STATUS_OK;
    status s = inner->batchnorm && m->state->train && keeps_x_norm(inner) ? make_x_norm(inner->batchnorm) : STATUS_OK;
    if (s != STATUS_OK) return s;
    size_t count = parts_of(inner, m, m->state->train, parts);
    float *to = inner->kept + m->step * record_floats(parts, count);
    for (size_t i = 0; i < count; to += parts[i++].floats) memcpy(to, parts[i].array, parts[i].floats * sizeof(float));
    return STATUS_OK;
}

static void recall_inner(layer *inner, const moment *m) {
    part parts[6];
    size_t count = parts_of(inner, m, was_trained(inner), parts), record = record_floats(parts, count), offset = 0;
    int last = keeps_x_norm(inner);
    if (was_trained(inner) && !keeps_x_norm(inner)) drop_x_norm(inner->batchnorm);
    for (size_t i = 0; i < count; offset += parts[i++].floats) {
        size_t step = last && parts[i].shared ? m->steps - 1 : m->step;
        memcpy(parts[i].array, inner->kept + step * record + offset, parts[i].floats * sizeof(float));
    }
}

const float *kept_output(const layer *inner, const moment *m) {
    part parts[6];
    size_t count = parts_of(inner, m, was_trained(inner), parts);
    return inner->kept + m->step * record_floats(parts, count);
}

status make_kept(layer *l, const moment *m) {
    part parts[6];
    size_t n, factors[] = {m->steps + 1, m->sequences, l->hidden, l->n_states};
    if (!product(&n, factors, 4)) return fail(STATUS_OUT_OF_MEMORY, "states of %zu time steps are too many", m->steps);
    status s = l->n_inner ? ensure_array(&l->kept, n) : STATUS_OK;
    for (size_t i = 0; s == STATUS_OK && i < l->n_inner; ++i) {
        layer *inner = l->inner[i];
        if (!inner) continue;
        size_t most[] = {m->steps, m->sequences, inner->outputs, sizeof parts / sizeof *parts};
        if (!product(&n, most, 4)) return fail(STATUS_OUT_OF_MEMORY, "outputs of %zu time steps are too many", m->steps);
        s = ensure_array(&inner->kept, m->steps * record_floats(parts, parts_of(inner, m, m->state->train, parts)));
    }
    return s;
}

status backward_inner(layer *inner, const float *delta, const float *input, const moment *m, float *into) {
    network_state inside = {.input = input, .batch = m->sequences, .train = m->state->train, .cache = 1, .delta = into};
    inside.workspace = m->state->workspace;
    status s = prepare_delta(inner, m->sequences, DELTA_START_KEPT);
    if (s != STATUS_OK) return s;
    recall_inner(inner, m);
    memcpy(inner->delta, delta, m->sequences * inner->outputs * sizeof(float));
    return backward_layer(inner, &inside);
}

/* ---- the walk --------------------------------------------------------------------------------------------------------------- */

status ready_to_go_back(layer *l, const network_state *state, size_t rooms, size_t *floats) {
    if (!l->kept_steps) return fail(STATUS_STATE, "backward needs a training forward before it");
    *floats = state->batch / l->kept_steps * l->hidden;
    return ensure_array(&l->carried, rooms * *floats);
}

status backward_steps(layer *l, const network_state *state, time_step step) {
    moment m = {.state = state, .steps = l->kept_steps, .sequences = state->batch / l->kept_steps};
    status s = STATUS_OK;
    for (m.step = m.steps; s == STATUS_OK && m.step-- > 0;) {
        size_t row = m.step * m.sequences;
        m.input = state->input + row * l->inputs;
        m.delta = l->delta + row * l->outputs;
        m.input_delta = state->delta ? state->delta + row * l->inputs : NULL;
        s = step(l, &m);
    }
    return s;
}
