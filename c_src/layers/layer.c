/* What every layer has: sizes, output, end. */
#include <stdlib.h>

#include "../internal.h"

layer *make_layer(shape in, shape out) {
    size_t inputs, outputs;
    size_t in_factors[] = {in.c, in.h, in.w}, out_factors[] = {out.c, out.h, out.w};
    if (!product(&inputs, in_factors, 3) || !product(&outputs, out_factors, 3)) {
        fail(STATUS_SHAPE, "a layer of %zu x %zu x %zu to %zu x %zu x %zu is too large", in.w, in.h, in.c, out.w, out.h, out.c);
        return NULL;
    }
    if (!inputs || !outputs) {
        fail(STATUS_SHAPE, "a layer of %zu x %zu x %zu to %zu x %zu x %zu has no values", in.w, in.h, in.c, out.w, out.h, out.c);
        return NULL;
    }
    layer *l = calloc(1, sizeof *l);
    if (!l) {
        fail(STATUS_OUT_OF_MEMORY, "no memory for a layer");
        return NULL;
    }
    l->c = in.c, l->h = in.h, l->w = in.w;
    l->out_c = out.c, l->out_h = out.h, l->out_w = out.w;
    l->inputs = inputs, l->outputs = outputs;
    l->learning_rate_scale = 1;
    return l;
}

void free_layer(layer *l) {
    if (!l) return;
    float *arrays[] = {l->weights,
                       l->biases,
                       l->scales,
                       l->rolling_mean,
                       l->rolling_variance,
                       l->anchors,
                       l->class_weights,
                       l->output,
                       l->delta,
                       l->x,
                       l->x_norm,
                       l->mean,
                       l->variance,
                       l->mean_delta,
                       l->variance_delta,
                       l->weight_updates,
                       l->activation_input,
                       l->rand,
                       l->scale_updates,
                       l->bias_updates,
                       l->state,
                       l->cell,
                       l->cell_delta,
                       l->carried,
                       l->kept};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; ++i) array_release(arrays[i]);
    free_layer(l->batchnorm);
    for (size_t i = 0; i < l->n_inner; ++i) free_layer(l->inner[i]);
    free(l->inner);
    free_tree(l->softmax_tree);
    free_layer(l->blur);
    free(l->sources);
    free(l->mask);
    free(l->map);
    free(l);
}

status ensure_output(layer *l, size_t batch) {
    size_t n, factors[] = {batch, l->outputs};
    if (!batch) return fail(STATUS_SHAPE, "a batch of 0 images has no output");
    if (!product(&n, factors, 2)) return fail(STATUS_OUT_OF_MEMORY, "%zu images of %zu outputs are too many", batch, l->outputs);
    status s = ensure_array(&l->output, n);
    if (s == STATUS_OK) l->batch = batch;
    return s;
}

status forward_layer(layer *l, const network_state *state) {
    size_t before = enter_float_mode(get_flush_denormals());
    status s = ensure_output(l, state->batch);
    if (s == STATUS_OK) s = l->forward(l, state);
    leave_float_mode(before);
    return s;
}

static void share(float **own, float *other) {
    array_retain(other);
    array_release(*own);
    *own = other;
}

/* Both have the array, as many floats as the parameters. */
static status share_made(float **own, float **other, size_t n) {
    if (ensure_array(other, n) != STATUS_OK) return STATUS_OUT_OF_MEMORY;
    share(own, *other);
    return STATUS_OK;
}

static status share_normalization(layer *l, layer *other, int statistics) {
    float **own[] = {&l->scale_updates, &l->bias_updates, &l->mean, &l->variance, &l->mean_delta, &l->variance_delta};
    float **theirs[] = {&other->scale_updates, &other->bias_updates, &other->mean,
                        &other->variance,      &other->mean_delta,   &other->variance_delta};
    share(&l->scales, other->scales);
    share(&l->biases, other->biases);
    share(&l->rolling_mean, other->rolling_mean);
    share(&l->rolling_variance, other->rolling_variance);
    for (size_t i = 0; i < (statistics ? 6 : 2); ++i)
        if (share_made(own[i], theirs[i], other->c) != STATUS_OK) return STATUS_OUT_OF_MEMORY;
    return STATUS_OK;
}

status share_parameters(layer *l, layer *other) {
    share(&l->weights, other->weights);
    if (share_made(&l->weight_updates, &other->weight_updates, other->nweights) != STATUS_OK) return STATUS_OUT_OF_MEMORY;
    if (l->batchnorm) return share_normalization(l->batchnorm, other->batchnorm, l->layer_rule.shared_statistics);
    /* Without a batchnorm of its own, l adds the biases of the other's. */
    layer *owner = other->batchnorm ? other->batchnorm : other;
    share(&l->biases, owner->biases);
    return share_made(&l->bias_updates, &owner->bias_updates, array_size(owner->biases));
}
