/* What the C files share and Python does not see. */
#ifndef DARKNETBN_INTERNAL_H
#define DARKNETBN_INTERNAL_H

#include "darknetbn.h"
#include "kernels/kernels.h"

/* ---- status.c --------------------------------------------------------------------------------------------------------------- */

/* Sets this thread's message and returns code. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
status fail(status code, const char *format, ...);

/* ---- array.c: counted float arrays ------------------------------------------------------------------------------------------ */

/* n floats of value 0, aligned to a cache line, with one reference; NULL with a message where n is too large or memory is out. */
float *make_array(size_t n);
float *make_dirty_array(size_t n); /* of any values */
/* *array becomes an array of n zeros, unless it holds n floats already. */
status ensure_array(float **array, size_t n);
/* false where the product of the factors does not fit into a size_t. */
int product(size_t *result, const size_t *factors, size_t n_factors);

/* ---- parallel.c ------------------------------------------------------------------------------------------------------------- */

typedef void (*parallel_body)(void *context, size_t begin, size_t end, size_t thread);

/* Equals: body(context, 0, count, 0). The range is cut into at most `threads` pieces, in order, and piece number `thread` is given to
 * body. work is the cost of one item in multiply-adds: small jobs stay on the calling thread. */
void parallel_for_on(size_t threads, size_t count, size_t work, parallel_body body, void *context);
/* The same on as many threads as set_num_threads() says. */
void parallel_for(size_t count, size_t work, parallel_body body, void *context);

/* ---- denormals.c ------------------------------------------------------------------------------------------------------------ */

/* Makes this thread's processor flush denormal floats or not, as get_flush_denormals() of the calling thread says; what it was
 * before goes back with leave_float_mode(). */
size_t enter_float_mode(int flushing);
void leave_float_mode(size_t before);

/* ---- workspace.c ------------------------------------------------------------------------------------------------------------ */

/* Room for `floats` of each of `threads`, its values left over from others: the workspace's, or *own, which the caller releases in
 * the end. NULL with a message where memory is out. */
float *take_scratch(const network_state *state, size_t floats, size_t threads, float **own);

/* ---- layers ----------------------------------------------------------------------------------------------------------------- */

/* A layer with its sizes set and nothing allocated; NULL with a message where a size is 0 or the counts overflow. */
layer *make_layer(shape in, shape out);
void free_tree(tree *t);
/* The output for a batch of images. */
status ensure_output(layer *l, size_t batch);
/* The blur of an antialiased layer whose output without it is (c, h, w), room for that, and what the blur makes of it. */
status make_blur(layer **blur, shape sharp, int antialiasing, size_t stride_x, size_t stride_y);
/* The caller releases it; where a backward follows, the blur keeps it as its x. */
float *make_sharp(layer *blur, const network_state *state);
status blur_output(layer *blur, const float *sharp, const network_state *state, float *output);
/* What a convolution of signs makes before its batchnorm or bias; s is of the whole image, scratch and threads of convolve. */
status convolve_signs(const layer *l, const network_state *state, convolution_shape s, float *output, float *scratch,
                      size_t threads);
/* A batchnorm's x, mean or variance become others: what was made of them is no more its x_norm. */
void drop_x_norm(layer *batchnorm);
/* A batch more, of l->mean and the variance kept, goes into the rolling arrays. */
void move_rolling(layer *batchnorm, const float *kept);
/* The last batch's mean and variance become them. */
void copy_rolling(layer *batchnorm);
/* The inference of a batchnorm that works in place and keeps nothing; its forward counts as done. */
batchnorm_pass inference_of(layer *batchnorm);
/* Whether a pass hands moments out. */
int exchanges(const network_state *state);
/* What an in-place batchnorm does to its host's output (batch, c, h*w). */
status normalize_output(layer *batchnorm, float *output, const network_state *state);

/* ---- training ---------------------------------------------------------------------------------------------------------------- */

/* Adds the biases unless they are NULL and activates the layer's output; for a backward, what went in is kept where its derivative
 * needs that. */
status activate_output(layer *l, float *output, extent e, const float *biases, const network_state *state, int host);
/* delta of what went into the activation, from l->delta, in place */
void activation_delta(layer *l, extent e);
/* delta, of an output, becomes that of what came before batchnorm or bias and activation, in place; their gradients are added. */
status delta_of_sums(layer *l, extent e, const float *output, float *delta, const network_state *state);
/* The arrays that a batchnorm's backward and update work with. */
status ensure_gradients(layer *batchnorm);
/* What an in-place batchnorm does to the delta of its host's output. */
status normalize_delta(layer *batchnorm, float *delta, const network_state *state);
/* state->delta += delta, (batch, inputs) */
void add_delta(const layer *l, const network_state *state, const float *delta);
/* What is written into `into`, (batch, inputs), goes into state->delta as the rule of copied deltas says. */
typedef status (*write_delta)(const layer *l, const network_state *state, float *into);
status copy_delta(const layer *l, const network_state *state, write_delta write);
/* The delta of what went into l's blur, an array that the caller releases; blur->x becomes what the activation's derivative is taken
 * from. */
status delta_before_blur(const layer *l, const network_state *state, float **sharp);
/* *updates is an array of as many floats as the parameters, zeros at first. */
status ensure_updates(float **updates, const float *parameters);
/* Those of the weights and biases that a layer has. */
status ensure_all_updates(layer *l);
/* updates -= decay * batch * parameters; parameters += rate / batch * updates; updates *= momentum */
void move_parameters(float *parameters, float *updates, size_t n, const update_options *o, float decay);
status backward_convolutional_layer(layer *l, const network_state *state);
/* weights, and the batchnorm or biases behind them */
status update_weights(layer *l, const update_options *o);

/* ---- losses.c ---------------------------------------------------------------------------------------------------------------- */

typedef enum {
    LOSS_OF_YOLO,
    LOSS_OF_GAUSSIAN_YOLO,
    LOSS_OF_PLANAR_REGION,
    LOSS_OF_FLAT_REGION,
    LOSS_OF_DETECTION,
    LOSS_OF_ISEG
} head_kind;

/* Whether the layer is to compare its output with a truth in this forward. */
int has_truth(const layer *l, const network_state *state);
/* Of a head whose output is there: its deltas, cost and statistics; without a truth nothing. */
status head_loss(layer *l, const network_state *state, head_kind kind);
/* The layer's delta is added to that of the layer before. */
status backward_loss(layer *l, const network_state *state);

/* ---- recurrent_layer.c, recurrent_backward.c -------------------------------------------------------------------------------- */

/* One time step of a batch, and its part of each array. */
typedef struct {
    const network_state *state;
    size_t steps, sequences, step;
    const float *input; /* (sequences, inputs) */
    float *output;      /* (sequences, outputs), of a forward */
    float *delta;       /* (sequences, outputs), of a backward */
    float *input_delta; /* (sequences, inputs), of a backward, or NULL: nobody wants it */
} moment;
/* From (sequences, inputs) to (sequences, outputs), moving the state on; or back. */
typedef status (*time_step)(layer *l, const moment *m);

/* Runs step on each time step of the batch in turn. */
status forward_steps(layer *l, const network_state *state, time_step step);
/* STATUS_STATE without a forward that kept what a backward needs; else l->carried has room for so many times the state. */
status ready_to_go_back(layer *l, const network_state *state, size_t rooms, size_t *floats);
/* forward_steps from the last to the first. */
status backward_steps(layer *l, const network_state *state, time_step step);
/* An inner layer's output for (sequences, inputs). */
status forward_inner(layer *inner, const float *input, const moment *m);
/* Back through an inner layer as it was in this step: delta of its output, input as then, into: as state->delta. What is left of the
 * delta is inner->delta. */
status backward_inner(layer *inner, const float *delta, const float *input, const moment *m, float *into);
/* Room for what the steps leave; what one left of the state (slot 0: before the first) and of an inner layer; back into that. */
status make_kept(layer *l, const moment *m);
void keep_state(layer *l, const moment *m);
status keep_inner(layer *inner, const moment *m);
const float *kept_state(const layer *l, const moment *m, size_t slot);
const float *kept_cell(const layer *l, const moment *m, size_t slot);
const float *kept_output(const layer *inner, const moment *m);
/* Both kinds of LSTM. */
status backward_lstm_layer(layer *l, const network_state *state);
status backward_conv_lstm_layer(layer *l, const network_state *state);
status update_inner_layers(layer *l, const update_options *o);
/* A layer with room for n_inner layers, none made yet, that keeps n_states arrays of `hidden` floats for each sequence. */
status make_recurrent_layer(layer **l, shape in, shape out, size_t n_inner, size_t n_states, size_t hidden);
/* Inner layer i: that convolution with c channels and n filters; STATUS_SHAPE where it does not keep height and width. */
status make_inner_convolution(layer *l, size_t i, const convolutional_options *o, size_t c, size_t n, const batchnorm_rule *bn,
                              const layer_rule *rule);
typedef status (*layer_pass)(layer *l, const network_state *state);
/* *made is the layer, which takes the rule, the passes and the update of its inner layers; or, where s is a failure, it is freed and
 * *made NULL. */
status finish_layer(layer **made, layer *l, status s, const layer_rule *rule, layer_pass forward, layer_pass backward);

#endif
