/* The contract between the C core and Python.
 *
 * The part between the two cdef marks is read twice: by the C compiler, and by cffi (cdef.py cuts it out, and puts the marked part
 * of what it includes in its place). There is no second copy of a prototype or a struct. Names are Darknet's. C knows numbers and
 * their order; which fork does what stands in pydarknetbn/dialect/ and comes here as the rule structs.
 *
 * Conventions
 *   arrays     float32, C order, (batch, c, h, w). "spatial" is h*w.
 *   delta      minus the gradient of the loss, Darknet's sign; *_updates likewise.
 *   status     what can fail returns a `status`; what went wrong is told by status_message() of the same thread.
 *              Nothing is printed, nothing exits, and a call that failed left the layer usable.
 *   ownership  a layer owns what its pointers point to, free_layer() frees it. Its float arrays are counted: array_retain() keeps
 *              one alive beyond its layer, array_release() gives it back. No pointer of the caller's is kept after a call returns.
 *   threads    a layer may be used by one thread at a time; different layers by different threads.
 */
#ifndef DARKNETBN_H
#define DARKNETBN_H

#include <stddef.h>

/* cdef begin */

typedef enum {
    STATUS_OK,
    STATUS_OUT_OF_MEMORY,
    STATUS_SHAPE,
    STATUS_NUMERICS,
    STATUS_STATE,
    STATUS_UNSUPPORTED,
    STATUS_EXCHANGE /* what a statistics_exchange was given failed; its giver knows why */
} status;

#include "rules.h"

/* ---- layers ----------------------------------------------------------------------------------------------------------------- */

typedef enum {
    ACTIVATION_LINEAR,
    ACTIVATION_LEAKY,
    ACTIVATION_RELU,
    ACTIVATION_RELU6,
    ACTIVATION_LOGISTIC,
    ACTIVATION_TANH,
    ACTIVATION_ELU,
    ACTIVATION_SELU,
    ACTIVATION_MISH,
    ACTIVATION_SWISH,
    ACTIVATION_HARD_MISH,
    ACTIVATION_GELU,
    ACTIVATION_REVLEAKY,
    ACTIVATION_LOGGY,
    ACTIVATION_RELIE,
    ACTIVATION_RAMP,
    ACTIVATION_PLSE,
    ACTIVATION_LHTAN,
    ACTIVATION_STAIR,
    ACTIVATION_HARDTAN,
    ACTIVATION_NORMALIZE_CHANNELS, /* these three over the channels of each pixel */
    ACTIVATION_NORMALIZE_CHANNELS_SOFTMAX,
    ACTIVATION_NORMALIZE_CHANNELS_SOFTMAX_MAXVAL
} activation;

typedef enum { NORMALIZATION_NONE, NORMALIZATION_RELU, NORMALIZATION_SOFTMAX } normalization; /* of a shortcut's weights */

typedef enum { YOLO_POINT_CENTER, YOLO_POINT_LEFT_TOP, YOLO_POINT_RIGHT_BOTTOM } yolo_point; /* what x and y are of a box */
typedef enum { CACHED_NOTHING, CACHED_INFERENCE, CACHED_TRAINING } cached; /* x, or x, x_norm, mean and variance */

typedef struct {
    size_t c, h, w;
} shape;
typedef struct layer layer;
typedef struct tree tree;
typedef struct workspace workspace;

#include "losses.h"

/* What a batchnorm hands out on its way, and takes back. exchange gets the values of this process and leaves those to go on with;
 * n counts them. A status other than STATUS_OK ends the pass before a parameter or rolling array changes. It is called without a
 * lock of the core's, between the loops over the batch.
 *   EXCHANGED_MOMENTS     forward: n, mean (c), sum of (x - mean)^2 (c), in double
 *   EXCHANGED_DELTA_SUMS  backward in training: sum of delta (c), sum of delta * (x - mean) (c), in double */
typedef enum { EXCHANGED_MOMENTS, EXCHANGED_DELTA_SUMS } exchanged;
typedef struct {
    status (*exchange)(void *handle, exchanged what, double *values, size_t n);
    void *handle;
    int in_inference; /* moments also outside training */
    int normalizes;   /* the moments that come back normalise, the rule gives epsilons and denominators; else they are only told */
    int sums_parameters; /* scale and bias updates take up what comes back of the delta sums; else what this process has */
} statistics_exchange;

typedef struct {
    const float *input;          /* (batch, inputs) of the layer before */
    const float *const *sources; /* outputs of the layers that from= and layers= name, in that order */
    size_t batch;
    int train;            /* batch statistics, rolling arrays move */
    int cache;            /* keep x for a backward */
    int allow_degenerate; /* one value for each channel in training: give the fork's NaN instead of STATUS_NUMERICS */
    size_t steps;         /* recurrent layers: the batch is (steps, sequences); 0 stands for 1 */
    workspace *workspace; /* whose scratch the layers use in turn; NULL: each takes its own for the call */
    const statistics_exchange *exchange; /* of the layer's batchnorm, not of layers inside a recurrent one; NULL: none */
    /* backward */
    float *delta;                /* of the layer before, (batch, inputs), or NULL: nobody wants it */
    float *const *source_deltas; /* of the sources, each or NULL */
    const float *truth;          /* of layers with a loss, (batch, truths) */
    size_t seen;                 /* images that the network was trained with, these included */
} network_state;

/* How an update moves the parameters of one layer. */
typedef struct {
    size_t batch; /* images whose gradients came together */
    float learning_rate, momentum, decay;
} update_options;

typedef enum {
    POLICY_CONSTANT,
    POLICY_STEP,
    POLICY_STEPS,
    POLICY_EXP,
    POLICY_POLY,
    POLICY_RANDOM,
    POLICY_SIGMOID,
    POLICY_SGDR
} policy;

/* What a learning rate depends on, by Darknet's names. */
typedef struct {
    policy policy;
    float learning_rate, learning_rate_min, power, gamma, scale;
    size_t burn_in, max_batches, step, cycle, cycle_multiplier, n_steps; /* step, cycle and cycle_multiplier are 1 or more */
    const long long *steps;                                              /* (n_steps) */
    const float *scales;                                                 /* (n_steps) */
} rate_options;

/* random: from 0 to 1, for POLICY_RANDOM */
float learning_rate(const rate_rule *rule, const rate_options *o, size_t iteration, float random);

struct layer { /* free_layer() and clone_layer() know each pointer */
    size_t c, h, w, out_c, out_h, out_w;
    size_t inputs, outputs; /* floats of one image */
    size_t batch;           /* of the working arrays' last forward, 0 before it */

    size_t n, groups, size, stride_x, stride_y, pad, dilation;
    activation activation;
    size_t nweights;
    float *weights, *biases, *scales, *rolling_mean, *rolling_variance;

    layer *batchnorm;              /* owned: normalises this layer's output in place; it holds scales, biases and rolling arrays */
    layer *blur;                   /* owned: antialiasing, which takes this layer's strides; out_c, out_h, out_w are the blur's */
    batchnorm_rule batchnorm_rule; /* of a batchnorm */
    layer_rule layer_rule;

    size_t n_sources; /* route: the layers it joins; shortcut: those it adds to its input */
    shape *sources;   /* (n_sources) */
    size_t group_id;
    normalization weights_normalization;
    int linear_sum; /* shortcut: its one source is added value after value over the batch, see shortcut_sums */
    float alpha, beta, kappa, scale, temperature;
    size_t classes, coords, total;
    int *mask;      /* (n) */
    float *anchors; /* (2*total) */
    float scale_x_y;
    int new_coords, softmax, background, reverse, flatten, true_order, scale_wh, depth, average, xnor;
    size_t side; /* of [detection]'s grid, 0 elsewhere */
    int sqrt, classfix;
    yolo_point yolo_point;
    tree *softmax_tree; /* owned */
    loss_options loss;  /* truths 0: none */
    int *map;           /* (n_map), or NULL */
    size_t n_map;
    float *class_weights; /* (classes), or NULL */
    cost cost_kind;
    int masks_input;

    /* working arrays: made by the forward or backward that needs them, (batch, outputs) or (c) */
    float *output, *delta, *x, *x_norm;
    float *mean, *variance, *mean_delta, *variance_delta, *weight_updates, *scale_updates, *bias_updates;
    float *rand; /* dropout: (batch, inputs) numbers from 0 to 1; one below `probability` drops its value */
    float probability;
    float *activation_input; /* (batch, outputs) before an activation whose derivative is not one of the output */
    float learning_rate_scale;
    int has_cost;                              /* it has a loss */
    float cost;                                /* of the last forward with truth, over its batch */
    loss_statistics statistics;                /* of that */
    size_t x_batch, x_norm_batch, delta_batch; /* images that each is of, 0 none */
    size_t num_batches_tracked;                /* training forwards that moved the rolling arrays */
    cached cached;                             /* what the last forward left for a backward */
    size_t exchanged;                          /* values in a channel of which an exchange made mean and variance, 0: none did */
    int freeze_statistics;                     /* rolling arrays stay in a training forward */
    int freeze_parameters;                     /* update changes nothing */

    layer **inner; /* owned, (n_inner): what a recurrent layer is made of, numbered by rnn, gru or lstm; NULL where it has none */
    size_t n_inner, n_states; /* n_states: 1 state, 2 state and cell */
    size_t hidden, sequences; /* floats of one sequence's state; sequences that the state is of, 0 none yet */
    float *state, *cell;      /* (sequences, hidden), kept from one forward to the next */
    float *cell_delta;        /* (sequences, hidden): what a backward leaves of the first step's, see recurrent_rule */
    float *carried;           /* scratch of a backward; first the delta that a step leaves to the one before */
    float *kept;              /* what each time step left for a backward; inner layers have theirs */
    size_t kept_steps;        /* of the last forward, 0 none */
    int restarts;             /* training begins with a state of zeros and ends with one */
    int shortcut;
    float state_constrain; /* the cell stays within +-this; 0 no limit, below 0: 32 for each time step */
    float limit;           /* what that is in the last forward */

    status (*forward)(layer *l, const network_state *state);
    status (*backward)(layer *l, const network_state *state);  /* NULL: none */
    status (*update)(layer *l, const update_options *options); /* NULL: nothing to train */
};

const char *status_message(void);

float *array_retain(float *array);
void array_release(float *array);
size_t array_size(const float *array); /* how many floats it holds */
/* References to it, and how many array_retain() ever gave: an array that only its layer refers to, and that nobody was lent since, is
 * as it was. */
size_t array_users(const float *array);
size_t array_retained(const float *array);
/* How many floats the calling thread's further arrays may hold together; SIZE_MAX: as many as memory gives. What is over it is
 * STATUS_OUT_OF_MEMORY before memory is taken. */
void limit_arrays(size_t floats);
/* Bytes of all arrays that there are in the process, and the most since reset_arrays_peak(). */
size_t arrays_held(void);
size_t arrays_peak(void);
void reset_arrays_peak(void);

/* Memory that the layers of one network share in a forward: scratch of the layer at work, and n arrays that hold the outputs of
 * several layers one after another. */
status make_workspace(workspace **w, size_t n);
void free_workspace(workspace *w);
/* The next output of l goes into array i of w, which is made to hold `floats` for each image of a batch. An array that has other
 * users, such as a view, is left to them and made anew. */
status lend_output(layer *l, workspace *w, size_t i, size_t floats, size_t batch);
/* l lets go of its output, and the next forward makes one. */
void drop_output(layer *l);

void free_layer(layer *l);
status forward_layer(layer *l, const network_state *state);
typedef enum { DELTA_START_KEPT, DELTA_START_CLEARED, DELTA_START_MULTIPLIED } delta_start; /* multiplied by 0: a NaN stays */
/* A delta for the next backward on so many images; what is not there yet starts as zeros. */
status prepare_delta(layer *l, size_t batch, delta_start start);
/* A gradient for each parameter, of zeros where there is none yet; backward makes those that it needs by itself. */
status prepare_gradients(layer *l);
/* Gradients of the last forward, whose state it is given again: l->delta, which is changed on the way, goes into the *_updates, which
 * are added to, and into state->delta. */
status backward_layer(layer *l, const network_state *state);
status update_layer(layer *l, const update_options *options);
/* l reads and changes the parameters and gradients of another layer of the same sizes instead of its own. */
status share_parameters(layer *l, layer *other);
/* A layer of the same kind, rules and parameters without working arrays and state; share: its parameters are the other's arrays. */
status clone_layer(layer **l, const layer *other, int share);

/* A batchnorm over (c, h, w). Parameters start as in every fork: scales 1, all else 0. */
status make_batchnorm_layer(layer **l, size_t c, size_t h, size_t w, const batchnorm_rule *rule);
/* STATUS_NUMERICS where a forward on n values in each channel would divide by 0; nothing else is changed by any failure. */
status check_batchnorm_layer(const layer *l, size_t n, const network_state *state);
status resize_batchnorm_layer(layer *l, size_t h, size_t w);
/* Into the caller's output (batch, c, h, w); the layer's own stays as it is. With an exchange that normalizes, a training batch may
 * be of 0 images, input and output NULL: mean, variance and rolling arrays become what they become elsewhere, and the same of the
 * updates in a backward, with its deltas NULL. */
status forward_batchnorm_layer(layer *l, const network_state *state, float *output);
/* delta and input_delta: the caller's, of the layer's output and input; the layer's own delta stays as it is. */
status backward_batchnorm_layer(layer *l, const float *delta, float *input_delta, const network_state *state);
/* Makes l->x_norm, which is else NULL: of the last training forward that kept x, until the next. STATUS_STATE where there is none. */
status make_x_norm(layer *l);
status update_batchnorm_layer(layer *l, size_t batch, float learning_rate, float momentum, float decay);
/* statistics: rolling arrays and their count become 0; parameters: scales 1, biases 0. */
status reset_batchnorm_layer(layer *l, int statistics, int parameters);

typedef struct {
    size_t c, h, w, n, groups, size, stride_x, stride_y, pad, dilation;
    activation activation;
    int batch_normalize;
    int antialiasing; /* stride 1, then a blur with the strides: 2 over 2 x 2, else over 3 x 3 pixels; 0 none */
    int xnor;         /* signs instead of values */
} convolutional_options;

status make_convolutional_layer(layer **l, const convolutional_options *o, const batchnorm_rule *bn, const layer_rule *rule);
status make_connected_layer(layer **l, size_t inputs, size_t outputs, activation a, int batch_normalize, const batchnorm_rule *bn,
                            const layer_rule *rule);

typedef struct {
    size_t c, h, w, size, stride_x, stride_y, padding; /* padding: of both sides together */
    size_t out_channels; /* not 0: over the channels k, k + out_channels, … of each pixel instead of a window */
    int antialiasing;    /* as in convolutional_options */
    int average;         /* the mean of what is within the image */
} maxpool_options;

status make_maxpool_layer(layer **l, const maxpool_options *o, const layer_rule *rule);
status make_avgpool_layer(layer **l, size_t c, size_t h, size_t w);
status make_upsample_layer(layer **l, size_t c, size_t h, size_t w, size_t stride, int reverse, float scale,
                           const layer_rule *rule);
/* true_order: out[k][j][i] reads the block that a space-to-depth reads; else Darknet's first, which models were trained with. */
status make_reorg_layer(layer **l, size_t c, size_t h, size_t w, size_t stride, int reverse, int flatten, int true_order,
                        const layer_rule *rule);
/* (c, h, w) and extra zeros, a vector without width and height */
status make_reorg_extra_layer(layer **l, size_t c, size_t h, size_t w, size_t extra, const layer_rule *rule);
status make_softmax_layer(layer **l, size_t c, size_t h, size_t w, size_t groups, float temperature, const layer_rule *rule);

status make_activation_layer(layer **l, size_t c, size_t h, size_t w, activation a, const layer_rule *rule);
/* The logistic, whose delta is that of what goes into it: with a truth (batch, outputs), truth - output for the cross entropy. */
status make_logistic_layer(layer **l, size_t c, size_t h, size_t w, const layer_rule *rule);
/* What runs in training for a layer that passes its input on: it changes its input in place, so that all who read it see that. */
status make_dropout_layer(layer **l, size_t c, size_t h, size_t w, float probability, const layer_rule *rule);
/* Room for l->rand, which the caller fills before each forward. */
status prepare_dropout(layer *l, size_t batch);
/* x / sqrt(sum of squares) over the channels of each pixel */
status make_l2norm_layer(layer **l, size_t c, size_t h, size_t w, const layer_rule *rule);
/* x * (kappa + alpha * sum of squares over size channels)^-beta */
status make_normalization_layer(layer **l, size_t c, size_t h, size_t w, size_t size, float alpha, float beta, float kappa,
                                const layer_rule *rule);
/* 2x - 1 of the middle of the image, or (adjust 0) the middle itself */
status make_crop_layer(layer **l, size_t c, size_t h, size_t w, size_t crop_h, size_t crop_w, int adjust);
/* weights (atoms of each filter), whatever the input is */
status make_implicit_layer(layer **l, size_t filters, size_t atoms);
/* source * input: one input for each channel, or with scale_wh one for each pixel */
status make_scale_channels_layer(layer **l, shape in, shape source, int scale_wh, activation a, const layer_rule *rule);
status make_sam_layer(layer **l, shape in, shape source, activation a, const layer_rule *rule);

typedef struct {
    size_t c, h, w, n, size, stride, pad;
    activation activation;
    int batch_normalize;
} local_options;

/* A convolution with weights (pixel, filter, c, size, size) and biases (filter, pixel) of each output pixel; pad 0 or 1 and more. */
status make_local_layer(layer **l, const local_options *o, const layer_rule *rule);
/* A convolution the other way round, weights (c, filter, size, size). */
status make_deconvolutional_layer(layer **l, const local_options *o, const batchnorm_rule *bn, const layer_rule *rule);

status make_route_layer(layer **l, const shape *sources, size_t n_sources, size_t groups, size_t group_id);

typedef struct {
    size_t c, h, w;
    activation activation;
    size_t nweights; /* 0, n_sources + 1, or c times that */
    normalization weights_normalization;
    float alpha, beta;  /* of the input and of the one source, where sizes differ */
    shape source_input; /* the first source's own input, for shortcut_sums */
} shortcut_options;

status make_shortcut_layer(layer **l, const shortcut_options *o, const shape *sources, size_t n_sources, const layer_rule *rule);

typedef struct {
    size_t c, h, w, n, total, classes, coords, side;
    float scale_x_y;
    int new_coords, softmax, background, sqrt, classfix;
    yolo_point yolo_point;
} head_options;

#include "recurrent.h"

status make_yolo_layer(layer **l, const head_options *o, const int *mask, const float *anchors, const layer_rule *rule);
status make_gaussian_yolo_layer(layer **l, const head_options *o, const int *mask, const float *anchors, const layer_rule *rule);
status make_region_layer(layer **l, const head_options *o, const float *anchors, const layer_rule *rule);
status make_detection_layer(layer **l, const head_options *o, const layer_rule *rule);
status make_iseg_layer(layer **l, size_t c, size_t h, size_t w, size_t classes, size_t ids, const layer_rule *rule);
/* The classes of a region, or the values of a softmax, become the n nodes of a tree. parent (n): -1, or a node before. */
status set_softmax_tree(layer *l, const int *parent, size_t n);

#include "detections.h"

/* ---- kernels that tests hold against each other, and threads ---------------------------------------------------------------- */

/* host: in a convolutional or shortcut layer, which some forks compute otherwise. */
void activate_array(float *x, size_t n, activation a, const arithmetic_rule *rule, int host);
void activate_array_plain(float *x, size_t n, activation a, const arithmetic_rule *rule, int host);
/* delta *= derivative, for n values of an output y or, where the derivative is one of what went in, of that x. */
void gradient_array(const float *y, const float *x, size_t n, activation a, const arithmetic_rule *rule, float *delta);

/* exp, log, tanh and cubes in activations, softmaxes and boxes: "own", the same bits everywhere, or "system", those of libm. */
const char *libm_in_use(void);
status set_libm(const char *name); /* not while a forward runs */
/* out = f(x) with the functions in use; of doubles there is no log. */
typedef enum { ELEMENTARY_EXP, ELEMENTARY_LOG, ELEMENTARY_TANH, ELEMENTARY_CUBE } elementary_function;
void elementary_floats(elementary_function f, const float *x, size_t n, float *out);
void elementary_doubles(elementary_function f, const double *x, size_t n, double *out);

/* One step of a batchnorm over (batch, c, spatial). train: the batch's statistics; infer: given ones; backward: delta, scaled, goes
 * through the forward before. *_plain is the specification, one loop a formula. */
typedef struct {
    size_t batch, c, spatial;
    const batchnorm_rule *rule;
    const float *scales, *biases;
    const float *input;                  /* forward: x; backward: delta of the output */
    float *output;                       /* may be the input, in infer NULL; backward: delta of x */
    float *x, *x_norm;                   /* forward: copies of x and of the quotient go here, or NULL; backward: those, x_norm NULL
                                            where it is the quotient of x, mean and variance */
    float *mean, *variance;              /* train: overwritten, with the variance that normalises */
    float *kept;                         /* train: overwritten with the variance that the rolling array takes up */
    float *scale_updates, *bias_updates; /* backward adds to them; biases: or NULL */
    float *mean_delta, *variance_delta;  /* backward: overwritten, unless constant */
    int constant;                        /* backward: mean and variance do not depend on x */
    size_t count;                        /* carry: values that mean and variance are of; else 0: those of the batch */
} batchnorm_pass;

void batchnorm_train(const batchnorm_pass *p);
void batchnorm_infer(const batchnorm_pass *p);
void batchnorm_backward(const batchnorm_pass *p);
void batchnorm_train_plain(const batchnorm_pass *p);
void batchnorm_infer_plain(const batchnorm_pass *p);
void batchnorm_backward_plain(const batchnorm_pass *p);
/* What an exchange hands out, see there. The order of the sums is this package's own: eight by turns, through batch and pixels. */
void batchnorm_moments(const batchnorm_pass *p, double *values);
void batchnorm_delta_sums(const batchnorm_pass *p, double *sums);
/* The sum of delta * x_norm (c), which is another where mean and variance became those of another layer since. */
void batchnorm_scale_sums(const batchnorm_pass *p, double *sums);
/* mean_delta and variance_delta of channel f, of its sums of delta and of delta * (x - mean). */
void batchnorm_take_sums(const batchnorm_pass *p, size_t f, double deltas, double products);
/* The end of a backward whose mean_delta and variance_delta are there. */
void batchnorm_carry(const batchnorm_pass *p);

typedef struct {
    size_t c, h, w, n, out_h, out_w; /* of one group; n filters */
    size_t size, stride_x, stride_y, pad_x, pad_y, dilation;
    int direct; /* the image is the matrix, see direct_1x1 */
} convolution_shape;

/* out[b][g][f][j] = sum over k of weights[g][f][k] * column[b][g][k][j], k = (channel, row, column) in that order from 0, each
 * product and each sum rounded to float. images = batch * groups; image i uses the weights of group i % groups. */
size_t convolve_scratch(const convolution_shape *s); /* floats for each thread */
void convolve(const convolution_shape *s, size_t images, size_t groups, const float *input, const float *weights, float *output,
              float *scratch, size_t threads);
void convolve_plain(const convolution_shape *s, size_t images, size_t groups, const float *input, const float *weights,
                    float *output);

/* What a convolution's weights and input get of the delta (batch * groups, n, out_h, out_w) of its output; see
 * kernels/convolution_gradients_plain.c. transposed: transpose_weights() of them. Scratch: floats for each thread. */
size_t weight_gradients_scratch(const convolution_shape *s);
void weight_gradients(const convolution_shape *s, size_t batch, size_t groups, const float *input, const float *delta,
                      float *updates, float *scratch, size_t threads);
void weight_gradients_plain(const convolution_shape *s, size_t batch, size_t groups, const float *input, const float *delta,
                            float *updates);
size_t input_gradients_scratch(const convolution_shape *s);
void transpose_weights(const convolution_shape *s, size_t groups, const float *weights, float *transposed);
void input_gradients(const convolution_shape *s, size_t batch, size_t groups, const float *transposed, const float *delta,
                     input_delta how, float *into, float *scratch, size_t threads);
void input_gradients_plain(const convolution_shape *s, size_t batch, size_t groups, const float *weights, const float *delta,
                           input_delta how, float *into);

/* The inner loops are compiled for several instruction sets, which give the same bits: "portable", "avx2", "avx512", "neon". */
const char *cpu_variant(void);            /* the one in use */
const char *cpu_variant_at(size_t i);     /* those that run on this processor, from 0; NULL beyond the last */
status set_cpu_variant(const char *name); /* not while a forward runs */
int cpu_has(const char *feature);         /* "sse2", "avx2", "fma", "avx512f", "neon"; 0 for any other */

enum { MAX_THREADS = 256 };

/* Whether forward, backward and update on this thread take denormal floats for 0 and give 0 for them; at first not. Between calls the
 * thread's own mode is as it was. STATUS_UNSUPPORTED where the processor has no such switch. */
status set_flush_denormals(int on);
int get_flush_denormals(void);

size_t get_num_threads(void);
void set_num_threads(size_t n);

/* cdef end */

#endif
