/* Floor 1: loops over memory that someone else owns. No malloc, no layer, no fork, no failure: their callers have checked.
 *
 * Every sum runs in the order that its comment gives, one accumulator for each output, so that the result has the same bits on any
 * number of threads and with any vector width. Sizes: x is (batch, c, spatial) unless said. */
#ifndef DARKNETBN_KERNELS_H
#define DARKNETBN_KERNELS_H

#include "../darknetbn.h"

typedef struct {
    size_t batch, c, spatial;
} extent;

/* ---- batchnorm_plain.c ------------------------------------------------------------------------------------------------------ */

/* (v + eps)^-1.5 or what stands for it */
double batchnorm_root_to_minus_3(float v, const epsilon_rule *e, const batchnorm_rule *rule);

/* mean, variance and kept of channel f, by the formula of squares */
void batchnorm_moments_of_squares(const batchnorm_pass *p, size_t f);

/* ---- batchnorm_strided.c ---------------------------------------------------------------------------------------------------- */

/* batchnorm_train and batchnorm_backward of the rules that is_strided() of batchnorm_passes.c names */
void batchnorm_train_strided(const batchnorm_pass *p);
void batchnorm_backward_strided(const batchnorm_pass *p);

/* ---- batchnorm.c ------------------------------------------------------------------------------------------------------------ */

/* batchnorm_train and batchnorm_backward of the rules that is_serial() of batchnorm_passes.c names */
void batchnorm_train_serial(const batchnorm_pass *p);
void batchnorm_backward_serial(const batchnorm_pass *p);

/* batchnorm_infer for n values of one channel, in place. constants: of all channels, room for as many floats as the size says. */
size_t batchnorm_constants_size(size_t c);
void batchnorm_constants(const batchnorm_pass *p, float *constants);
void batchnorm_infer_values(const batchnorm_pass *p, const float *constants, float *x, size_t n, size_t channel);

/* ---- batchnorm_moments.c ---------------------------------------------------------------------------------------------------- */

/* batchnorm_train and batchnorm_backward of the rules that is_double() of batchnorm_passes.c names */
void batchnorm_train_double(const batchnorm_pass *p);
void batchnorm_backward_double(const batchnorm_pass *p);

/* ---- batchnorm_moments_plain.c ---------------------------------------------------------------------------------------------- */

/* The same, one loop a formula: mean, variance and kept; and of a backward all but the delta of the input */
void batchnorm_moments_plain(const batchnorm_pass *p);
void batchnorm_delta_sums_plain(const batchnorm_pass *p);

/* ---- convolution.c ---------------------------------------------------------------------------------------------------------- */

/* What is done to values of one output channel, or filter, as soon as their sums are complete, while they are in a cache */
typedef struct {
    void (*run)(const void *context, float *x, size_t n, size_t channel);
    const void *context;
} finisher;

void convolve_finished(const convolution_shape *s, size_t images, size_t groups, const float *input, const float *weights,
                       float *output, float *scratch, size_t threads, const finisher *f);

/* ---- activations.c ---------------------------------------------------------------------------------------------------------- */

/* Every activation, those over the channels of a pixel too: x / sum of the positive values, exp(x) / sum, exp(x - largest) / sum,
 * each sum from 1e-4. In place. */
void activate_channels(float *x, extent e, activation a, const arithmetic_rule *rule, int host);
/* add_bias, then activate_channels; in one pass over memory where that is possible. */
void activate_biased(float *x, const float *biases, extent e, activation a, const arithmetic_rule *rule, int host);

static inline int is_over_channels(activation a) {
    return a >= ACTIVATION_NORMALIZE_CHANNELS;
}

typedef struct {
    activation a;
    precision p;
    void (*loop)(float *x, size_t n, float bias); /* NULL where it would have other functions in it than those in use */
} activator;

/* What activates single values, and n of them with a bias added before; a bias of -0 changes none. */
activator activator_of(activation a, const arithmetic_rule *rule, int host);
void activate_values(const activator *f, float *x, size_t n, float bias);

/* ---- gradients.c ------------------------------------------------------------------------------------------------------------ */

/* Whether the derivative, or in some profile the exact one, is taken from what went into the activation. */
int needs_activation_input(activation a);
/* gradient_array, and what stands for it in activations over the channels of a pixel */
void gradient_channels(const float *y, const float *x, extent e, activation a, const arithmetic_rule *rule, float *delta);

/* ---- blas.c ----------------------------------------------------------------------------------------------------------------- */

/* x[b][c][s] += biases[c] */
void add_bias(float *x, const float *biases, extent e);
/* x[b][c][s] *= scales[c] */
void scale_bias(float *x, const float *scales, extent e);
/* y[i] += alpha * x[i];  x[i] *= alpha */
void axpy_cpu(size_t n, float alpha, const float *x, float *y);
void scal_cpu(size_t n, float alpha, float *x);
/* out[b][o] = 0 + sum over k of input[b][k] * weights[o][k], k from 0 */
void multiply_transposed(const float *input, const float *weights, size_t batch, size_t inputs, size_t outputs, float *out);
/* n values at the given stride: exp((x - largest)/temperature) over their sum, the quotients taken first */
void softmax_cpu(const float *input, size_t n, float temperature, size_t stride, precision exp_precision, float *output);

/* updates[o][i] += delta[b][o] * input[b][i], b from 0;  into[b][i] += delta[b][o] * weights[o][i], o from 0 */
void connected_weight_gradients(const float *delta, const float *input, size_t batch, size_t inputs, size_t outputs,
                                float *updates);
void connected_input_gradients(const float *delta, const float *weights, size_t batch, size_t inputs, size_t outputs, float *into);
/* updates[c] += sum over the pixels of an image, image after image */
void bias_gradients(const float *delta, extent e, float *updates);

/* ---- trees.c ---------------------------------------------------------------------------------------------------------------- */

struct tree {
    size_t n, groups;
    int *parent, *child;               /* (n) a node; the group of its daughters, -1 for a leaf */
    size_t *group_offset, *group_size; /* (groups) first node and number of sisters */
    size_t *group;                     /* (n) that a node is in */
};

void softmax_tree_cpu(const float *input, const tree *t, float temperature, size_t stride, precision p, float *output);
void hierarchy_predictions(float *predictions, const tree *t);
size_t hierarchy_top_prediction(const float *predictions, const tree *t, float thresh);
/* The product of a node's probability and those above it. */
float hierarchy_probability(const float *predictions, const tree *t, int node, size_t stride);

/* ---- boxes, in heads.c and nms.c ---------------------------------------------------------------------------------------------- */

/* exp(t) * anchor / size, of a box's width or height */
float scaled_anchor(float t, float anchor, float size, precision p);
/* i/u, i the area of the intersection, u of the union; without area NaN or 0, as the rule says */
float box_iou(box a, box b, iou rule);
/* iou - (d/c)^.6, d the squared distance of the centres, c the squared diagonal of the box around both; iou where c is 0 */
float box_diou(box a, box b, iou rule);

/* ---- planes.c: layers that move values about -------------------------------------------------------------------------------- */

typedef struct {
    size_t c, h, w, out_h, out_w, size, stride_x, stride_y, padding;
} maxpool_shape;

void maxpool_cpu(const float *input, size_t batch, const maxpool_shape *s, float *output);
/* The mean of the window's values within the image, summed row by row. */
void local_avgpool_cpu(const float *input, size_t batch, const maxpool_shape *s, float *output);
/* out[b][k][s] = the largest of in[b][k + i*out_c][s] */
void maxpool_depth_cpu(const float *input, extent e, size_t out_c, float *output);
/* out = scale * in + shift of the window of out at (top, left) */
void crop_cpu(const float *input, size_t planes, size_t h, size_t w, size_t out_h, size_t out_w, float scale, float shift,
              float *output);
void avgpool_cpu(const float *input, extent e, float *output);
/* (c, h, w) to (c, h*stride, w*stride), each value repeated and multiplied by scale; the reverse sums scale * value into output */
void upsample_cpu(const float *input, size_t planes, size_t h, size_t w, size_t stride, float scale, float *output);
void downsample_cpu(const float *input, size_t planes, size_t h, size_t w, size_t stride, float scale, float *output);
/* output += the reverse, value after value */
void add_downsampled_cpu(const float *input, size_t planes, size_t h, size_t w, size_t stride, float scale, float *output);
/* Darknet's reorg of (c, h, w): scatter moves into the image that is stride times as large, gather out of it. */
void reorg_cpu(const float *input, size_t batch, size_t c, size_t h, size_t w, size_t stride, int scatter, float *output);
/* (layers, size) to (size, layers), or back */
void flatten_cpu(const float *input, size_t batch, size_t size, size_t layers, int forward, float *output);

/* ---- planes_gradients.c: each adds to `into`, output after output -------------------------------------------------------------- */

/* The delta of a window goes to its largest value, the first of equal ones; that of a window without any, to none. */
void maxpool_gradients(const float *input, const float *delta, size_t batch, const maxpool_shape *s, float *into);
void maxpool_depth_gradients(const float *input, const float *delta, extent e, size_t out_c, float *into);
/* delta / the window's values within the image (exact), or all of them */
void local_avgpool_gradients(const float *delta, size_t batch, const maxpool_shape *s, int exact, float *into);
/* into[b][c][s] += delta[b][c] / spatial */
void avgpool_gradients(const float *delta, extent e, float *into);

/* ---- shortcut.c ------------------------------------------------------------------------------------------------------------- */

typedef struct {
    size_t n, outputs, weights_step; /* sources; floats of one image; outputs that share a weight */
    const shape *sources;
    const float *const *inputs;
    const float *weights; /* (n + 1, outputs / weights_step) or NULL */
    normalization normalization;
} shortcut_sum;

/* Weight i (0 is the input's) of output o, normalised over the n + 1 weights that share that output. */
float shortcut_weight(const shortcut_sum *s, size_t i, size_t o);
/* updates += gradients of the weights, from those of the normalised ones */
void normalized_weight_gradients(const shortcut_sum *s, const float *weight_gradients, float *updates);
/* out[i] = w0*in[i] + w1*source1[i] + ..., each sum rounded; a source with fewer floats adds to the first of them */
void shortcut_multilayer_cpu(const float *input, size_t batch, const shortcut_sum *s, float *output);
/* out = alpha*out + beta*source on the common channels, with a stride where the sizes differ */
void shortcut_cpu(const float *source, shape from, size_t batch, shape to, float alpha, float beta, float *output);

/* ---- shortcut_gradients.c ---------------------------------------------------------------------------------------------------- */

/* input_delta and deltas, each of them or NULL, += delta * their weight, the input's first, then the sources' in turn;
 * weight_gradients[i] += delta * value, image after image, as if the weights were not normalised */
void shortcut_multilayer_gradients(const float *input, const float *delta, size_t batch, const shortcut_sum *s, float *input_delta,
                                   float *const *deltas, float *weight_gradients);

/* ---- recurrent.c ------------------------------------------------------------------------------------------------------------ */

/* y[i] *= x[i] */
void mul_cpu(size_t n, const float *x, float *y);
/* out[i] = s[i] * a[i] + (1 - s[i]) * b[i] */
void weighted_sum_cpu(const float *a, const float *b, const float *s, size_t n, float *out);
/* What a, b and s get of the delta of that. */
void weighted_sum_gradients(const float *a, const float *b, const float *s, size_t n, const float *delta, float *a_delta,
                            float *b_delta, float *s_delta);
/* delta[i] becomes 0 where x[i] is not within +-limit. */
void constrain_gradient(size_t n, float limit, const float *x, float *delta);
/* x[i] becomes limit or -limit where it is beyond; NaN becomes -limit */
void constrain_cpu(size_t n, float limit, float *x);
/* A NaN or infinity at i becomes 1 / i, which at 0 is infinite again. */
void fix_nan_and_inf_cpu(float *x, size_t n);

/* ---- channels.c ------------------------------------------------------------------------------------------------------------- */

/* in place, one root for each pixel: squares summed from channel 0 */
void l2normalize_cpu(float *x, extent e);

typedef struct {
    size_t size;
    float alpha, beta, kappa;
} normalization_window;

/* output = values * norms^-beta with norms[0] = kappa + alpha * (squares of channels below size/2), and each later one the one before
 * less what leaves and plus what enters the window; norms (parallel parts, spatial) are scratch for `threads` images */
void normalize_channels_cpu(const float *input, const float *values, extent e, const normalization_window *window, size_t threads,
                            float *norms, float *output);

/* ---- channels_gradients.c ---------------------------------------------------------------------------------------------------- */

/* delta of x, from that of x / norm; added to into */
void l2normalize_gradients(const float *x, const float *delta, extent e, float *into);
/* The derivative of normalize_channels_cpu, written into into; scratch: (2 * c) floats for each of the threads. */
void normalize_channels_gradients(const float *input, const float *delta, extent e, const normalization_window *window,
                                  size_t threads, float *scratch, float *into);
/* scales_delta += delta * x, summed in the order of x; x_delta = or (added) += scales * delta. Each may be NULL. */
void scale_channels_gradients(const float *x, const float *scales, const float *delta, extent e, int wh, int added,
                              float *scales_delta, float *x_delta);

/* ---- channels.c ------------------------------------------------------------------------------------------------------------- */

/* out[b][k][s] = scales[b][k] * x[b][k][s], or with wh scales[b][s] * x[b][k][s] */
void scale_channels_cpu(const float *x, const float *scales, extent e, int wh, float *output);

/* ---- xnor.c ------------------------------------------------------------------------------------------------------------------ */

/* signs of (n, size) weights, a 0 counting as negative, and the mean magnitude of each filter */
void binarize_weights(const float *weights, size_t n, size_t size, float *signs, float *means);
/* signs of (planes, h, w) in a border of pad times minus 1 */
void binarize_padded(const float *input, size_t planes, size_t h, size_t w, size_t pad, float *signs);

/* ---- local.c ---------------------------------------------------------------------------------------------------------------- */

typedef struct {
    size_t c, h, w, n, out_h, out_w, size, stride, pad;
} local_shape;

/* out[b][f][j] = bias[f][j] + sum over k of weights[j][f][k] * column[b][k][j], k from 0, added to the bias one by one */
void local_cpu(const float *input, size_t batch, const local_shape *s, const float *weights, const float *biases, float *output);
/* out[b][f] = sum over the kernel's elements of (sum over k of weights[k][f][element] * in[b][k]), each laid where it falls */
void deconvolve(const float *input, size_t batch, const local_shape *s, const float *weights, float *output);

/* ---- local_gradients.c ------------------------------------------------------------------------------------------------------- */

/* updates[j][f][k] += 0 + delta[b][f][j] * column[b][k][j], image after image */
void local_weight_gradients(const float *input, const float *delta, size_t batch, const local_shape *s, float *updates);
/* columns[k][j] = 0 + sum over f of weights[j][f][k] * delta[f][j], each added to the pixel it came from, k from 0 */
void local_input_gradients(const float *weights, const float *delta, size_t batch, const local_shape *s, float *into);
/* updates[c][k] += sum over pixels j of input[c][j] * column[k][j], the columns of delta: image after image */
void deconvolution_weight_gradients(const float *input, const float *delta, size_t batch, const local_shape *s, float *updates);
/* into[c][j] += weights[c][k] * column[k][j], one by one, k from 0 */
void deconvolution_input_gradients(const float *weights, const float *delta, size_t batch, const local_shape *s, float *into);

#endif
