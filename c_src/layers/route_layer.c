/* Layers joined along the channels, or one part of the channels of each (AlexeyAB/darknet src/route_layer.c). Layers of unequal width
 * and height make a vector. */
#include <stdlib.h>
#include <string.h>

#include "../internal.h"

static status forward_route_layer(layer *l, const network_state *state) {
    size_t offset = 0;
    for (size_t i = 0; i < l->n_sources; ++i) {
        size_t floats = l->sources[i].c * l->sources[i].h * l->sources[i].w, part = floats / l->groups;
        for (size_t b = 0; b < state->batch; ++b)
            memcpy(l->output + b * l->outputs + offset, state->sources[i] + b * floats + part * l->group_id, part * sizeof(float));
        offset += part;
    }
    return STATUS_OK;
}

static status backward_route_layer(layer *l, const network_state *state) {
    size_t offset = 0;
    for (size_t i = 0; i < l->n_sources; ++i) {
        size_t floats = l->sources[i].c * l->sources[i].h * l->sources[i].w, part = floats / l->groups;
        float *into = state->source_deltas[i];
        for (size_t b = 0; into && b < state->batch; ++b)
            axpy_cpu(part, 1, l->delta + b * l->outputs + offset, into + b * floats + part * l->group_id);
        offset += part;
    }
    return STATUS_OK;
}

static int same_sizes(const shape *sources, size_t n) {
    for (size_t i = 1; i < n; ++i)
        if (sources[i].h != sources[0].h || sources[i].w != sources[0].w) return 0;
    return 1;
}

static status check(const shape *sources, size_t n_sources, size_t groups, size_t group_id) {
    if (!n_sources || !groups || group_id >= groups)
        return fail(STATUS_SHAPE, "a route needs a source and a group_id below groups, got %zu of %zu", group_id, groups);
    for (size_t i = 0; i < n_sources; ++i) {
        size_t floats, factors[] = {sources[i].c, sources[i].h, sources[i].w};
        if (!product(&floats, factors, 3)) return fail(STATUS_SHAPE, "source %zu is too large", i);
        if (same_sizes(sources, n_sources) ? sources[i].c % groups : floats % groups)
            return fail(STATUS_SHAPE, "%zu channels do not divide into %zu groups", sources[i].c, groups);
    }
    return STATUS_OK;
}

status make_route_layer(layer **made, const shape *sources, size_t n_sources, size_t groups, size_t group_id) {
    *made = NULL;
    status s = check(sources, n_sources, groups, group_id);
    if (s != STATUS_OK) return s;
    int same = same_sizes(sources, n_sources);
    shape out = same ? (shape){0, sources[0].h, sources[0].w} : (shape){0, 1, 1};
    for (size_t i = 0; i < n_sources; ++i) {
        size_t part = (same ? sources[i].c : sources[i].c * sources[i].h * sources[i].w) / groups;
        if (out.c + part < part) return fail(STATUS_SHAPE, "the sources of a route are too large together");
        out.c += part;
    }
    layer *l = make_layer(out, out);
    if (!l) return STATUS_SHAPE;
    l->sources = malloc(n_sources * sizeof *sources);
    if (!l->sources) {
        free_layer(l);
        return fail(STATUS_OUT_OF_MEMORY, "no memory for a route");
    }
    memcpy(l->sources, sources, n_sources * sizeof *sources);
    l->n_sources = n_sources;
    l->groups = groups;
    l->group_id = group_id;
    l->forward = forward_route_layer;
    l->backward = backward_route_layer;
    *made = l;
    return STATUS_OK;
}
