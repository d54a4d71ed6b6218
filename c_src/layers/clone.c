/* A second layer of the same sizes, rules and parameters, as if no forward had been. */
#include <stdlib.h>
#include <string.h>

#include "../internal.h"
#include "../kernels/kernels.h"

/* What the copied struct still points to belongs to the other layer. */
static void forget_pointers(layer *l) {
    float **arrays[] = {&l->weights,
                        &l->biases,
                        &l->scales,
                        &l->rolling_mean,
                        &l->rolling_variance,
                        &l->anchors,
                        &l->class_weights,
                        &l->output,
                        &l->delta,
                        &l->x,
                        &l->x_norm,
                        &l->mean,
                        &l->variance,
                        &l->mean_delta,
                        &l->variance_delta,
                        &l->weight_updates,
                        &l->activation_input,
                        &l->rand,
                        &l->scale_updates,
                        &l->bias_updates,
                        &l->state,
                        &l->cell,
                        &l->cell_delta,
                        &l->carried,
                        &l->kept};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; ++i) *arrays[i] = NULL;
    l->batchnorm = l->blur = NULL;
    l->inner = NULL;
    l->sources = NULL;
    l->mask = l->map = NULL;
    l->softmax_tree = NULL;
    l->batch = l->x_batch = l->x_norm_batch = l->delta_batch = l->sequences = l->n_inner = l->kept_steps = l->exchanged = 0;
    l->cached = CACHED_NOTHING;
}

/* NULL of NULL; else NULL where memory is out */
static void *copied(const void *from, size_t bytes) {
    void *made = from ? malloc(bytes) : NULL;
    if (made) memcpy(made, from, bytes);
    return made;
}

static float *array_of(float *from, int share) {
    if (!from || share) return array_retain(from);
    float *made = make_dirty_array(array_size(from));
    if (made) memcpy(made, from, array_size(from) * sizeof *from);
    return made;
}

static status copy_arrays(layer *l, const layer *from, int share) {
    float **to[] = {&l->weights, &l->biases, &l->scales, &l->rolling_mean, &l->rolling_variance, &l->anchors, &l->class_weights};
    float *given[] = {from->weights,          from->biases,  from->scales,       from->rolling_mean,
                      from->rolling_variance, from->anchors, from->class_weights};
    for (size_t i = 0; i < sizeof to / sizeof *to; ++i)
        if (given[i] && !(*to[i] = array_of(given[i], share))) return STATUS_OUT_OF_MEMORY;
    l->sources = copied(from->sources, from->n_sources * sizeof *from->sources);
    l->mask = copied(from->mask, from->n * sizeof *from->mask);
    l->map = copied(from->map, from->n_map * sizeof *from->map);
    if ((from->sources && !l->sources) || (from->mask && !l->mask) || (from->map && !l->map))
        return fail(STATUS_OUT_OF_MEMORY, "no memory for a layer");
    return from->softmax_tree ? set_softmax_tree(l, from->softmax_tree->parent, from->softmax_tree->n) : STATUS_OK;
}

static status copy_layers(layer *l, const layer *from, int share) {
    status s = from->batchnorm ? clone_layer(&l->batchnorm, from->batchnorm, share) : STATUS_OK;
    if (s == STATUS_OK && from->blur) s = clone_layer(&l->blur, from->blur, share);
    if (s != STATUS_OK || !from->inner) return s;
    l->inner = calloc(from->n_inner + 1, sizeof(layer *)); /* never of no bytes */
    if (!l->inner) return fail(STATUS_OUT_OF_MEMORY, "no memory for a layer");
    l->n_inner = from->n_inner;
    for (size_t i = 0; s == STATUS_OK && i < from->n_inner; ++i)
        if (from->inner[i]) s = clone_layer(&l->inner[i], from->inner[i], share);
    return s;
}

status clone_layer(layer **made, const layer *from, int share) {
    layer *l = *made = copied(from, sizeof *from);
    if (!l) return fail(STATUS_OUT_OF_MEMORY, "no memory for a layer");
    forget_pointers(l);
    status s = copy_arrays(l, from, share);
    if (s == STATUS_OK) s = copy_layers(l, from, share);
    if (s == STATUS_OK) return s;
    free_layer(l);
    *made = NULL;
    return s;
}
