/* Convolution, then batchnorm or bias, then activation (pjreddie/darknet src/convolutional_layer.c forward_convolutional_layer). */
#include "../internal.h"
#include "../kernels/kernels.h"
#include "convolution_shape.h"

static size_t out_size(size_t in, size_t pad, size_t size, size_t dilation, size_t stride) {
    return (in + 2 * pad * dilation - dilation * (size - 1) - 1) / stride + 1;
}

/* What follows the sums of a convolution in inference */
typedef struct {
    batchnorm_pass batchnorm;
    const float *constants, *biases; /* of the batchnorm, or NULL; NULL with a batchnorm */
    activator activator;
} finishing;

static void finish_values(const void *context, float *x, size_t n, size_t channel) {
    const finishing *f = context;
    if (f->constants) batchnorm_infer_values(&f->batchnorm, f->constants, x, n, channel);
    if (f->biases || f->activator.a != ACTIVATION_LINEAR)
        activate_values(&f->activator, x, n, f->biases ? f->biases[channel] : -0.F);
}

/* Nothing of it is kept or of the whole batch, and planes are large enough for a call each. */
static int finishes_at_once(const layer *l, const network_state *state, const convolution_shape *s) {
    enum { SMALL_PLANE = 16 };
    return !l->xnor && !state->cache && !(l->batchnorm && (state->train || exchanges(state))) && !is_over_channels(l->activation) &&
           s->out_h * s->out_w >= SMALL_PLANE;
}

static status convolve_and_finish(layer *l, const network_state *state, const convolution_shape *s, float *output, float *scratch,
                                  size_t threads) {
    finishing f = {.biases = l->batchnorm ? NULL : l->biases,
                   .activator = activator_of(l->activation, &l->layer_rule.arithmetic, 1)};
    float *constants = l->batchnorm ? make_dirty_array(batchnorm_constants_size(l->n)) : NULL;
    if (l->batchnorm && !constants) return STATUS_OUT_OF_MEMORY;
    if (l->batchnorm) {
        f.batchnorm = inference_of(l->batchnorm);
        batchnorm_constants(&f.batchnorm, constants);
    }
    f.constants = constants;
    finisher finish = {finish_values, &f};
    convolve_finished(s, state->batch * l->groups, l->groups, state->input, l->weights, output, scratch, threads, &finish);
    array_release(constants);
    return STATUS_OK;
}

static status convolve_into(layer *l, const network_state *state, float *output) {
    convolution_shape s = shape_of_group(l);
    extent e = {state->batch, l->n, s.out_h * s.out_w};
    size_t threads = get_num_threads(); /* asked once: another thread may change it */
    float *own = NULL, *scratch = take_scratch(state, convolve_scratch(&s), threads, &own);
    if (!scratch) return STATUS_OUT_OF_MEMORY;
    status done = STATUS_OK;
    int finished = finishes_at_once(l, state, &s);
    if (finished)
        done = convolve_and_finish(l, state, &s, output, scratch, threads);
    else if (l->xnor)
        done = convolve_signs(l, state, s, output, scratch, threads);
    else
        convolve(&s, state->batch * l->groups, l->groups, state->input, l->weights, output, scratch, threads);
    array_release(own);
    if (done != STATUS_OK || finished) return done;
    if (l->batchnorm) done = normalize_output(l->batchnorm, output, state);
    return done == STATUS_OK ? activate_output(l, output, e, l->batchnorm ? NULL : l->biases, state, 1) : done;
}

float *make_sharp(layer *blur, const network_state *state) {
    size_t floats, factors[] = {state->batch, blur->inputs};
    if (!product(&floats, factors, 2)) {
        fail(STATUS_OUT_OF_MEMORY, "%zu images are too many to blur", state->batch);
        return NULL;
    }
    if (!state->cache) return make_array(floats);
    return ensure_array(&blur->x, floats) == STATUS_OK ? array_retain(blur->x) : NULL;
}

static status forward_convolutional_layer(layer *l, const network_state *state) {
    if (!l->blur) return convolve_into(l, state, l->output);
    float *sharp = make_sharp(l->blur, state);
    if (!sharp) return STATUS_OUT_OF_MEMORY;
    status done = convolve_into(l, state, sharp);
    if (done == STATUS_OK) done = blur_output(l->blur, sharp, state, l->output);
    array_release(sharp);
    return done;
}

status blur_output(layer *blur, const float *sharp, const network_state *state, float *output) {
    network_state of_blur = {.input = sharp, .batch = state->batch, .workspace = state->workspace};
    return convolve_into(blur, &of_blur, output);
}

/* A convolution of each channel by itself with the fixed kernel. */
status make_blur(layer **blur, shape sharp, int antialiasing, size_t stride_x, size_t stride_y) {
    size_t size = antialiasing == 2 ? 2 : 3, area = size * size;
    convolutional_options o = {.c = sharp.c, .h = sharp.h, .w = sharp.w, .n = sharp.c, .groups = sharp.c, .size = size};
    o.stride_x = stride_x, o.stride_y = stride_y, o.pad = size == 2 ? 0 : 1, o.dilation = 1;
    layer_rule rule = {0}; /* nothing of it matters to a linear kernel of more than one pixel */
    batchnorm_rule unused = {0};
    status s = make_convolutional_layer(blur, &o, &unused, &rule);
    if (s != STATUS_OK) return s;
    for (size_t i = 0; i < (*blur)->nweights; ++i) (*blur)->weights[i] = blur_weight(size, i % area / size, i % size);
    return STATUS_OK;
}

static status make_parameters(layer *l, int batch_normalize, const batchnorm_rule *rule) {
    size_t factors[] = {l->c / l->groups, l->n, l->size, l->size};
    if (!product(&l->nweights, factors, 4)) return fail(STATUS_SHAPE, "the weights of %zu filters are too many", l->n);
    l->weights = make_array(l->nweights);
    if (!l->weights) return STATUS_OUT_OF_MEMORY;
    convolution_shape s = shape_of_group(l);
    if (batch_normalize) return make_batchnorm_layer(&l->batchnorm, l->n, s.out_h, s.out_w, rule);
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
    if (o->xnor && o->groups > 1) return fail(STATUS_SHAPE, "a convolution of signs has no groups, got %zu", o->groups);
    if (o->c % o->groups || o->n % o->groups)
        return fail(STATUS_SHAPE, "%zu channels and %zu filters do not both divide into %zu groups", o->c, o->n, o->groups);
    return STATUS_OK;
}

status make_convolutional_layer(layer **made, const convolutional_options *o, const batchnorm_rule *bn, const layer_rule *rule) {
    *made = NULL;
    status s = check(o);
    if (s != STATUS_OK) return s;
    shape out = {o->n, out_size(o->h, o->pad, o->size, o->dilation, o->antialiasing ? 1 : o->stride_y),
                 out_size(o->w, o->pad, o->size, o->dilation, o->antialiasing ? 1 : o->stride_x)};
    layer *blur = NULL;
    if (o->antialiasing) {
        s = make_blur(&blur, out, o->antialiasing, o->stride_x, o->stride_y);
        if (s != STATUS_OK) return s;
        out = (shape){blur->out_c, blur->out_h, blur->out_w};
    }
    layer *l = make_layer((shape){o->c, o->h, o->w}, out);
    if (!l) {
        free_layer(blur);
        return STATUS_SHAPE;
    }
    l->blur = blur;
    l->n = o->n, l->groups = o->groups, l->size = o->size;
    l->stride_x = blur ? 1 : o->stride_x, l->stride_y = blur ? 1 : o->stride_y, l->pad = o->pad, l->dilation = o->dilation;
    l->activation = o->activation;
    l->xnor = o->xnor;
    l->layer_rule = *rule;
    l->forward = forward_convolutional_layer;
    l->backward = backward_convolutional_layer;
    l->update = update_weights;
    s = make_parameters(l, o->batch_normalize, bn);
    if (s != STATUS_OK)
        free_layer(l);
    else
        *made = l;
    return s;
}
