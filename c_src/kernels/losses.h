/* What the losses share. An image's deltas lie as its outputs do; nothing here looks whether its truth is one: that is done. */
#ifndef DARKNETBN_KERNELS_LOSSES_H
#define DARKNETBN_KERNELS_LOSSES_H

#include "kernels.h"

typedef struct {
    size_t count, class_count;
    float iou, iou_loss, giou_loss, recall, recall75;
    float class_score, any_class_score, objectness, any_objectness;
} loss_sums;

/* One image of a head in training. */
typedef struct {
    const layer *l;
    const loss_options *o;
    const loss_rule *rule;
    const float *truth;
    float *output, *delta; /* of the image */
    float *delta_of_batch; /* of the first image */
    float *scratch;        /* of [iseg]: for each row as many floats as ids, and one */
    loss_sums *sums;
    size_t image, seen;
} loss_image;

/* The box at the start of a row. */
box box_at(const float *row);
/* The class that a row of the truth tells. */
int class_of(const loss_image *m, const float *row);
/* (float)log(x), or logf(x) */
float log_of(float x, precision p);
/* -(1 - p)(2p log p + p - 1) of a probability */
float focus(float p);
/* The sum of x[i]*x[i], one by one */
float sum_of_squares(const float *x, size_t n);

/* Deltas and errors of n values: truth - input, squared or as the kind says. Gives the sum of the errors, one by one. */
float cost_cpu(const float *input, const float *truth, size_t n, cost kind, smooth_sign sign, float *delta, float *error);
/* input becomes -1234 where the truth is that */
void mask_cpu(float *input, const float *truth, size_t n);
/* delta = truth - p; the sum of -log(p) where truth is not 0 */
float softmax_cross_entropy(const float *p, const float *truth, size_t n, precision log_precision, float *delta);

void yolo_loss(const loss_image *m);
/* sum_of_squares of the head's deltas but those of n entries of each anchor */
float sum_of_squares_without(const layer *l, const float *delta, size_t batch, size_t first, size_t n);
void planar_region_loss(const loss_image *m);
/* Its deltas lie flattened, as its outputs do. */
void flat_region_loss(const loss_image *m);
void detection_loss(const loss_image *m);
void iseg_loss(const loss_image *m);

/* ---- region_common.c -------------------------------------------------------------------------------------------------------- */

int is_warm_up(const loss_image *m);
/* Of a head with a tree: a row without a place. */
int tells_class_alone(const layer *l, const float *row);
/* An anchor's box around 0, and in a cell */
box region_anchor(const layer *l, size_t n);
box region_anchor_in_cell(const layer *l, size_t n, size_t i, size_t j);
/* The largest overlap with the truth, and its row, if any overlaps. */
float largest_region_iou(const loss_image *m, box pred, const float **row);
/* The first row that tells a class of the image and no place; NULL: there is none. */
const float *region_class_alone(const loss_image *m);
/* Deltas of the classes, `stride` apart, of a [region]; tagged: where the first class has one, the own class alone gets its. */
void region_class_delta(const loss_image *m, float *delta, const float *output, size_t stride, int class_id, float scale,
                        int tagged);

#endif
