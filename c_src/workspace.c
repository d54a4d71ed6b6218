/* What the layers of a network use one after another, so that a forward takes the memory of its largest part and not of the sum. */
#include <stdlib.h>

#include "internal.h"

struct workspace {
    float *scratch;
    size_t n;
    float **outputs; /* (n) */
};

status make_workspace(workspace **made, size_t n) {
    workspace *w = *made = calloc(1, sizeof *w);
    if (w) w->outputs = calloc(n + 1, sizeof *w->outputs); /* never of no bytes */
    if (w && w->outputs) {
        w->n = n;
        return STATUS_OK;
    }
    free(w);
    *made = NULL;
    return fail(STATUS_OUT_OF_MEMORY, "no memory for a workspace of %zu arrays", n);
}

void free_workspace(workspace *w) {
    if (!w) return;
    array_release(w->scratch);
    for (size_t i = 0; i < w->n; ++i) array_release(w->outputs[i]);
    free(w->outputs);
    free(w);
}

float *take_scratch(const network_state *state, size_t floats, size_t threads, float **own) {
    float **scratch = state->workspace ? &state->workspace->scratch : own;
    size_t n, factors[] = {floats, threads};
    if (!product(&n, factors, 2)) {
        fail(STATUS_OUT_OF_MEMORY, "scratch of %zu floats for each of %zu threads is too large", floats, threads);
        return NULL;
    }
    if (*scratch && array_size(*scratch) >= n) return *scratch;
    array_release(*scratch);
    return *scratch = make_dirty_array(n);
}

void drop_output(layer *l) {
    array_release(l->output);
    l->output = NULL;
}

status lend_output(layer *l, workspace *w, size_t i, size_t floats, size_t batch) {
    float **array = &w->outputs[i];
    size_t n, factors[] = {floats, batch};
    drop_output(l);
    if (!product(&n, factors, 2)) return fail(STATUS_OUT_OF_MEMORY, "%zu images of %zu outputs are too many", batch, floats);
    if (!*array || array_users(*array) > 1 || array_size(*array) < n) {
        array_release(*array); /* before the new one is made, so that both are never there together */
        *array = make_array(n);
        if (!*array) return STATUS_OUT_OF_MEMORY;
    }
    l->output = array_retain(*array);
    return STATUS_OK;
}
