/* Rules, what a profile decides: a part of darknetbn.h. Field names are those of pydarknetbn/dialect/rules.py. */
#ifndef DARKNETBN_RULES_H
#define DARKNETBN_RULES_H

/* cdef begin */

typedef enum { SIDE_INSIDE, SIDE_OUTSIDE } side;              /* sqrt(v + value) or sqrt(v) + value */
typedef enum { LITERAL_FLOAT, LITERAL_DOUBLE } literal;       /* the type in which the source writes the number */
typedef enum { PRECISION_FLOAT, PRECISION_DOUBLE } precision; /* the type in which a step is computed; its result is a float */
typedef enum { DENOMINATOR_N_MINUS_1, DENOMINATOR_N } denominator;
/* How a channel's values are summed. Serial: batch, then pixel, in one float; the gradient of a bias sums each image by itself.
 * Strided, as by a block of 512 threads: part p sums pixels p, p + 512, … of each image in turn, from 0, and the parts are added one
 * by one to what there was, of a gradient, or to 0. Double: eight sums in double take turns through the pixels of each image and are
 * added in order, and each mean, variance, gradient and term is rounded once: the types of those steps play no part. */
typedef enum { SUMMATION_SERIAL, SUMMATION_STRIDED, SUMMATION_DOUBLE } summation;
/* What makes a mean or variance of a sum over n values: * (float)(1/n), or / (float)n */
typedef enum { MOMENTS_RECIPROCAL, MOMENTS_QUOTIENT } moments;
/* Differences: the mean of (x - mean)^2, of sums as the rule says. Squares: the mean of x^2 less mean^2, at least 0; both means are then
 * summed in double and rounded once, and all else is float. Where the mean is large, nothing of the variance is left. */
typedef enum { VARIANCE_FORMULA_DIFFERENCES, VARIANCE_FORMULA_SQUARES } variance_formula;
/* (v + eps)^-1.5 by pow, or 1 / (w * sqrt(w)), w = v + eps; with the epsilon outside root^-3 and 1 / (root * root * root) */
typedef enum { INVERSE_CUBE_POW, INVERSE_CUBE_ROOT } inverse_cube;
/* Copied: rolling, which the batch's mean and variance become. Constant: rolling, and no term of theirs. */
typedef enum { STATISTICS_BATCH, STATISTICS_ROLLING, STATISTICS_ROLLING_COPIED, STATISTICS_CONSTANT } statistics;

/* What rolling takes of the new value: the two factors; or, of the batch number n, counted from 1, 1/n, so that it is the mean of all
 * batches. */
typedef enum { ROLLING_FACTORS, ROLLING_CUMULATIVE } rolling;

typedef struct {
    double value;
    side side;
    literal literal;
} epsilon_rule;

typedef struct {
    epsilon_rule forward;           /* normalising, training and inference */
    epsilon_rule direct_term;       /* backward: delta / root */
    epsilon_rule statistic_terms;   /* backward: mean_delta, variance_delta */
    epsilon_rule fold;              /* folding into the layer before */
    precision fold_root;            /* the root of a fold */
    precision fold_factor;          /* scale / root, before it multiplies a weight; float: the bias's product too */
    denominator normalize_variance; /* the variance that normalises a training batch */
    denominator keep_variance;      /* the variance that the rolling array takes up */
    rolling rolling;                /* cumulative: 1 - 1/n and 1/n stand for the two factors */
    double rolling_keep;            /* rolling = rolling * keep + new * add, rounded twice */
    double rolling_add;
    variance_formula variance_formula;
    summation summation;
    moments moments;
    precision squares;          /* square and sum of a variance; each sum is rounded to float either way */
    precision intermediate;     /* root, quotient and power; other sums and products are float either way */
    inverse_cube inverse_cube;  /* of the variance's term */
    precision quotients;        /* backward: delta / root and -1 / root */
    precision products;         /* backward: those with -.5 and 2, and what is left of the sum of terms */
    int bias_gradient;          /* backward fills bias_updates */
    int host_bias_gradient;     /* so does the layer that it follows, before it, image after image */
    statistics eval_statistics; /* what a backward outside training takes for mean and variance */
    int trains_standalone;      /* a [batchnorm] of its own is updated */
} batchnorm_rule;

/* gelu's derivative: the forks' formula with tanh and pow of that type, which takes what came out for what went in; or the derivative.
 */
typedef enum { GELU_GRADIENT_FLOAT, GELU_GRADIENT_DOUBLE, GELU_GRADIENT_EXACT } gelu_gradient;
/* What activations over the channels of a pixel multiply each delta by: the sum of output times delta, as the forks do; or the
 * derivative. */
typedef enum { CHANNEL_GRADIENT_SUM, CHANNEL_GRADIENT_EXACT } channel_gradient;

typedef struct {
    precision transcendental; /* exp and what is built of it in logistic, loggy, tanh, elu, selu */
    precision leaky;          /* .1 * x */
    precision leaky_host;     /* .1 * x in convolutional and shortcut layers */
    precision piecewise;      /* the straight pieces of relie, ramp, plse, lhtan and stair */
    precision gelu;           /* tanh and pow of gelu */
    gelu_gradient gelu_gradient;
    channel_gradient channel_gradient;
    precision mish_gradient; /* exp and tanh of mish's derivative */
    precision softmax;       /* exp of softmax */
    precision box;           /* exp of a box's width and height */
    precision diou;          /* power of the distance in NMS_DIOUNMS */
} arithmetic_rule;

/* When a convolution of size 1 reads its input as the matrix itself, pixel after pixel from the first. With a stride that is not
 * the image that was meant, and models were trained so. Never where it would read outside the image. */
typedef enum { DIRECT_1X1_ANY_STRIDE, DIRECT_1X1_STRIDE_X_1 } direct_1x1;

/* What a shortcut of one source without weights compares before it adds value after value over the whole batch, as if every image of
 * the source had as many values as its own: nothing, or the source's own input with its own sizes. Never where that would read
 * beyond the source. */
typedef enum { SHORTCUT_SUMS_BY_IMAGE, SHORTCUT_SUMS_BY_SOURCE_INPUT } shortcut_sums;

typedef enum { IOU_PLAIN, IOU_ZERO_GUARD } iou;                    /* i / u, or 0 where i or u is 0 */
typedef enum { UNBOX_DIVIDE_RATIO, UNBOX_MULTIPLY_INVERSE } unbox; /* how the letterbox is undone, see correct_yolo_boxes */
typedef enum { SCAN_CELLS_OUTER, SCAN_ANCHORS_OUTER } scan;        /* order of the detections of one head */
typedef enum { REGION_PLANAR, REGION_FLATTENED } region;           /* layout and logistics of [region]'s output */
typedef enum { XNOR_FLOATS, XNOR_COUNTS } xnor;                    /* how a convolution of signs sums, see layers/xnor.c */
typedef enum {
    SIDES_H_W,
    SIDES_W_H
} sides; /* W_H: takes an image of h rows for one of w rows, the same floats in the same order */

/* What a convolution does to the delta of the layer before: adds to it, overwrites it, or overwrites it where its kernel has one
 * pixel. Where layers branch, an overwritten gradient is lost. */
typedef enum { INPUT_DELTA_ADDED, INPUT_DELTA_OVERWRITTEN, INPUT_DELTA_OVERWRITTEN_BY_1X1 } input_delta;

/* What layers that copy a delta do to the one that they copy it into: [activation], [reorg], [normalization], a reversed [upsample],
 * and [sam] for the layer that it multiplies. Where layers branch, an overwritten gradient is lost. */
typedef enum { COPIED_DELTA_ADDED, COPIED_DELTA_OVERWRITTEN } copied_delta;

/* What a connected layer does to the delta of its output first: nothing, or it brings what is beyond -1 or 1 there, and NaN to -1. */
typedef enum { CONNECTED_DELTA_FREE, CONNECTED_DELTA_CONSTRAINED } connected_delta;

/* Whether layers whose backward is not the derivative of their forward in the forks have it so. Simplified, [l2norm] hands its delta
 * on as it is, [normalization] leaves the neighbours out, [local_avgpool] divides by the whole window also at the border, weights of
 * a shortcut are taken as if they were not normalised, the blur of antialiasing is not gone back through (the delta of the blurred
 * image lies over the first values of the sharp one, whose activations it multiplies), and the layer before a [dropout] takes its
 * derivative from the output that the dropout has scaled. */
typedef enum { LAYER_GRADIENT_SIMPLIFIED, LAYER_GRADIENT_EXACT } layer_gradient;

/* What losses compute otherwise. Where two boxes fall on one anchor of a cell, the delta of the later replaces the other's or is added;
 * the first class's delta or the own class's tells that the cell has a class already, which then gets no deltas of 0; a cell is
 * spared the delta of no object where its box overlaps one, or where besides one of its classes is over a quarter; a number that is
 * none stays, or an objectness becomes 0 and a class's delta is left out; sums of a batch run through it, or each image has its own,
 * which are added in order; and the delta of a smooth cost beyond 1 points away from the truth or to it. */
typedef enum { BOX_DELTAS_REPLACED, BOX_DELTAS_ADDED } box_deltas;
typedef enum { CLASS_MARK_FIRST, CLASS_MARK_OWN } class_mark;
typedef enum { SPARED_OVERLAPPING, SPARED_OVERLAPPING_AND_SURE } spared;
typedef enum { NON_NUMBERS_KEPT, NON_NUMBERS_REPLACED } non_numbers;
typedef enum { SCORE_SUMS_BATCH, SCORE_SUMS_IMAGE } score_sums;
typedef enum { SMOOTH_SIGN_AWAY, SMOOTH_SIGN_TOWARDS } smooth_sign;

typedef struct {
    precision functions; /* log, sqrt and atan */
    box_deltas box_deltas;
    class_mark class_mark;
    spared spared;
    non_numbers non_numbers;
    score_sums score_sums;
    smooth_sign smooth_sign;
    double aspect_guard;      /* added to what divides the difference of two boxes' shapes */
    double normal_guard;      /* added to the density that [Gaussian_yolo] divides by, as a float */
    double probability_guard; /* added to the probability of a focal loss, as a float */
} loss_rule;

/* Backward through time. What a time step takes for the batchnorms and activations inside: its own statistics and inputs, or those
 * that the last step left; what an [rnn]'s output layer is taken to have read; whose delta goes to the input layer and along the
 * shortcut; the state and cell before the first step; those that the next batch starts with; a constrained cell before or after. */
typedef enum { STEP_STATISTICS_OWN, STEP_STATISTICS_LAST } step_statistics;
typedef enum { RNN_READING_STATE, RNN_READING_SUM } rnn_reading;        /* the sum of both layers, without a shortcut's state */
typedef enum { RNN_PASSING_STATE, RNN_PASSING_SELF } rnn_passing;       /* the state's, or what the self layer made of that */
typedef enum { LSTM_BEFORE_STATE, LSTM_BEFORE_FIRST_STEP } lstm_before; /* what there was, or the first step's own results */
typedef enum { LSTM_AFTER_LAST_STEP, LSTM_AFTER_FIRST_STEP } lstm_after;
typedef enum { CONV_LSTM_CELL_COMPUTED, CONV_LSTM_CELL_KEPT } conv_lstm_cell;

typedef struct {
    step_statistics step_statistics;
    rnn_reading rnn_reading;
    rnn_passing rnn_passing;
    int gru_backward; /* 0: a [gru]'s delta ends there */
    lstm_before lstm_before;
    lstm_after lstm_after;
    int lstm_keeps_cell_delta;  /* the first step's delta of the cell goes into the next batch's last step */
    int conv_lstm_passes_state; /* its convolutions of state and cell give a delta back */
    conv_lstm_cell conv_lstm_cell;
    int history_passes_all;       /* else the delta of the newest input alone */
    int inner_convolutions_learn; /* else their learning rate is 0 */
} recurrent_rule;

typedef struct {
    arithmetic_rule arithmetic;
    loss_rule losses;
    recurrent_rule recurrent;
    direct_1x1 direct_1x1;
    input_delta input_delta;
    copied_delta copied_delta;
    connected_delta connected_delta;
    layer_gradient gradient;
    int shared_statistics; /* layers with the same kernel have one array of batch statistics: backward takes the last layer's */
    shortcut_sums shortcut_sums;
    iou iou;
    unbox unbox;
    scan scan;
    region region;
    sides crnn_sides;
    xnor xnor;
} layer_rule;

typedef struct {
    precision power;        /* pow of burn_in, poly and random */
    precision exponential;  /* exp of sigmoid */
    int unsigned_iteration; /* sigmoid: the distance to a later iteration wraps around, and the rate is 0 */
    double pi;              /* of sgdr */
} rate_rule;

/* cdef end */

#endif
