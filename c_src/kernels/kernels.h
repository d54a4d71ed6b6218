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

/* sqrt(v + eps) or sqrt(v) + eps; (v + eps)^-1.5 or what stands for it */
double batchnorm_root(float v, const epsilon_rule *e, precision p);
double batchnorm_root_to_minus_3(float v, const epsilon_rule *e, precision p);

/* ---- activations.c ---------------------------------------------------------------------------------------------------------- */

/* Every activation, those over the channels of a pixel too: x / sum of the positive values, exp(x) / sum, exp(x - largest) / sum,
 * each sum from 1e-4. In place. */
void activate_channels(float *x, extent e, activation a, const arithmetic_rule *rule, int host);
/* add_bias, then activate_channels; in one pass over memory where that is possible. */
void activate_biased(float *x, const float *biases, extent e, activation a, const arithmetic_rule *rule, int host);

int is_over_channels(activation a);

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
};

void softmax_tree_cpu(const float *input, const tree *t, float temperature, size_t stride, precision p, float *output);
void hierarchy_predictions(float *predictions, const tree *t);
size_t hierarchy_top_prediction(const float *predictions, const tree *t, float thresh);

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
/* Darknet's reorg of (c, h, w): scatter moves into the image that is stride times as large, gather out of it. */
void reorg_cpu(const float *input, size_t batch, size_t c, size_t h, size_t w, size_t stride, int scatter, float *output);
/* (layers, size) to (size, layers), or back */
void flatten_cpu(const float *input, size_t batch, size_t size, size_t layers, int forward, float *output);

/* ---- shortcut.c ------------------------------------------------------------------------------------------------------------- */

typedef struct {
    size_t n, outputs, weights_step; /* sources; floats of one image; outputs that share a weight */
    const shape *sources;
    const float *const *inputs;
    const float *weights; /* (n + 1, outputs / weights_step) or NULL */
    normalization normalization;
} shortcut_sum;

/* out[i] = w0*in[i] + w1*source1[i] + ..., each sum rounded; a source with fewer floats adds to the first of them */
void shortcut_multilayer_cpu(const float *input, size_t batch, const shortcut_sum *s, float *output);
/* out = alpha*out + beta*source on the common channels, with a stride where the sizes differ */
void shortcut_cpu(const float *source, shape from, size_t batch, shape to, float alpha, float beta, float *output);

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

/* output = input * norms^-beta with norms[0] = kappa + alpha * (squares of channels below size/2), and each later one the one before
 * less what leaves and plus what enters the window; norms (parallel parts, spatial) are scratch for `threads` images */
void normalize_channels_cpu(const float *input, extent e, const normalization_window *window, size_t threads, float *norms,
                            float *output);
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

#endif
