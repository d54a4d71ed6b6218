/* Convolution, then batchnorm or bias, then activation (pjreddie/darknet src/convolutional_layer.c forward_convolutional_layer). */
#include <stdlib.h>

#include "../internal.h"
#include "../kernels/kernels.h"

static size_t out_size(size_t in, size_t pad, size_t size, size_t dilation, size_t stride) {
    return (in + 2 * pad * dilation - dilation * (size - 1) - 1) / stride + 1;
}

/* The forks skip im2col for a kernel of one pixel; it may not read past the image. */
static int reads_directly(const layer *l) {
    if (l->size != 1 || l->out_h * l->out_w > l->h * l->w) return 0;
    return l->layer_rule.direct_1x1 == DIRECT_1X1_ANY_STRIDE || l->stride_x == 1;
}

static convolution_shape shape_of_group(const layer *l) {
    return (convolution_shape){.c = l->c / l->groups,
                               .h = l->h,
                               .w = l->w,
                               .n = l->n / l->groups,
                               .out_h = l->out_h,
                               .out_w = l->out_w,
                               .size = l->size,
                               .stride_x = l->stride_x,
                               .stride_y = l->stride_y,
                               .pad_x = l->pad * l->dilation,
                               .pad_y = l->pad * l->dilation,
                               .dilation = l->dilation,
                               .direct = reads_directly(l)};
}

static status forward_convolutional_layer(layer *l, const network_state *state) {
    convolution_shape s = shape_of_group(l);
    size_t threads = get_num_threads(); /* asked once: another thread may change it */
    size_t bytes, factors[] = {convolve_scratch(&s), threads, sizeof(float)};
    float *scratch = product(&bytes, factors, 3) ? malloc(bytes) : NULL;
    if (!scratch) return fail(STATUS_OUT_OF_MEMORY, "no memory for the workspace of a convolution");
    convolve(&s, state->batch * l->groups, l->groups, state->input, l->weights, l->output, scratch, threads);
    free(scratch);
    if (l->batchnorm) {
        status done = normalize_output(l->batchnorm, l->output, state);
        if (done != STATUS_OK) return done;
    } else {
        add_bias(l->output, l->biases, (extent){state->batch, l->n, l->out_h * l->out_w});
    }
    activate_array(l->output, state->batch * l->outputs, l->activation, &l->layer_rule.arithmetic, 1);
    return STATUS_OK;
}

static status make_parameters(layer *l, int batch_normalize, const batchnorm_rule *rule) {
    size_t factors[] = {l->c / l->groups, l->n, l->size, l->size};
    if (!product(&l->nweights, factors, 4)) return fail(STATUS_SHAPE, "the weights of %zu filters are too many", l->n);
    l->weights = make_array(l->nweights);
    if (!l->weights) return STATUS_OUT_OF_MEMORY;
    if (batch_normalize) return make_batchnorm_layer(&l->batchnorm, l->out_c, l->out_h, l->out_w, rule);
    l->biases = make_array(l->n);
    return l->biases ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

static status check(const convolutional_options *o) {
    size_t largest = (size_t)1 << 31;
    if (!o->c || !o->n || !o->groups || !o->size || !o->stride_x || !o->stride_y || !o->dilation)
        return fail(STATUS_SHAPE, "a convolution needs channels, filters, groups, size, stride and dilation of 1 or more");
    if (o->h > largest || o->w > largest || o->size > largest || o->pad > largest || o->dilation > largest ||
        o->dilation * o->size > largest || o->pad * o->dilation > largest)
        return fail(STATUS_SHAPE, "a convolution of %zu x %zu with size %zu, padding %zu and dilation %zu is too large", o->h, o->w,
                    o->size, o->pad, o->dilation);
    size_t kernel = o->dilation * (o->size - 1) + 1, padding = 2 * o->pad * o->dilation;
    if (o->h + padding < kernel || o->w + padding < kernel)
        return fail(STATUS_SHAPE, "a kernel of %zu x %zu is larger than an image of %zu x %zu with a padding of %zu", kernel,
                    kernel, o->w, o->h, padding / 2);
    if (o->c % o->groups || o->n % o->groups)
        return fail(STATUS_SHAPE, "%zu channels and %zu filters do not both divide into %zu groups", o->c, o->n, o->groups);
    return STATUS_OK;
}

status make_convolutional_layer(layer **made, const convolutional_options *o, const batchnorm_rule *bn, const layer_rule *rule) {
    *made = NULL;
    status s = check(o);
    if (s != STATUS_OK) return s;
    shape out = {o->n, out_size(o->h, o->pad, o->size, o->dilation, o->stride_y),
                 out_size(o->w, o->pad, o->size, o->dilation, o->stride_x)};
    layer *l = make_layer((shape){o->c, o->h, o->w}, out);
    if (!l) return STATUS_SHAPE;
    l->n = o->n, l->groups = o->groups, l->size = o->size;
    l->stride_x = o->stride_x, l->stride_y = o->stride_y, l->pad = o->pad, l->dilation = o->dilation;
    l->activation = o->activation;
    l->layer_rule = *rule;
    l->forward = forward_convolutional_layer;
    s = make_parameters(l, o->batch_normalize, bn);
    if (s != STATUS_OK)
        free_layer(l);
    else
        *made = l;
    return s;
}
