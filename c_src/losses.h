/* Losses: a part of darknetbn.h, which includes it where its types are known. */
#ifndef DARKNETBN_LOSSES_H
#define DARKNETBN_LOSSES_H

/* cdef begin */

typedef struct {
    float x, y, w, h;
} box;

typedef enum { COST_SSE, COST_MASKED, COST_L1, COST_SMOOTH } cost;
typedef enum { IOU_LOSS_IOU, IOU_LOSS_MSE, IOU_LOSS_GIOU, IOU_LOSS_DIOU, IOU_LOSS_CIOU } iou_loss;

/* What a head compares with, and how. Of an image [yolo] and [region] read `boxes` rows of `row` floats x, y, w, h and more, the
 * middle and the sides relative to the input, up to the first whose x is 0; [iseg] as many of an instance, its class and all pixels,
 * up to the first with a class below 0; [detection] reads for each cell 0 or 1, the classes, x and y within the cell, w and h; all
 * others as many values as the layer has. */
typedef struct {
    size_t truths; /* floats of one image */
    size_t boxes, row, class_at;
    /* [yolo] */
    float net_w, net_h; /* of the network's input, in which anchors are measured */
    float ignore_thresh, truth_thresh, iou_thresh;
    iou_loss iou_loss, iou_thresh_kind;
    float uc_normalizer; /* of [Gaussian_yolo] */
    float iou_normalizer, obj_normalizer, cls_normalizer, max_delta, label_smooth_eps;
    int objectness_smooth;
    int details; /* the cost of an overlap is that of the overlaps and of the scores, not the squares of all deltas */
    /* [region] and [detection] */
    float thresh, coord_scale, object_scale, noobject_scale, class_scale;
    int mask_scale, rescore, bias_match, forced, random;
    int focal_loss; /* of [yolo], too */
} loss_options;

/* Means over the boxes that an anchor was found for, of the last forward with truth; NaN where a program divides 0 by 0. */
typedef struct {
    size_t count;                                                   /* of boxes */
    float iou, recall, recall75;                                    /* overlap; how many overlap by more than .5 and .75 */
    float class_score, any_class_score, objectness, any_objectness; /* of the box's class and anchor, of all */
    float class_loss, iou_loss, uc_loss, total_loss;                /* of one image */
} loss_statistics;

/* Gives a head its loss. map (n_map, or NULL): which classes those of the truth are; class_weights (classes) or NULL. */
status set_loss(layer *l, const loss_options *o, const int *map, size_t n_map, const float *class_weights);
/* delta (sum over its backward: times scale) and the sum of the squares, or what the kind says; masks_input: with COST_MASKED it
 * overwrites its input where the truth is -1234. */
status make_cost_layer(layer **l, size_t inputs, cost kind, float scale, int masks_input, const layer_rule *rule);

/* What losses of boxes are made of. */
float box_overlap(box a, box b, iou_loss kind, const layer_rule *rule);
/* d of the overlap by x, y, w and h of the first box, as the forks write it down: not divided by 2 for w and h. */
void box_overlap_slopes(box pred, box truth, iou_loss kind, const layer_rule *rule, float slopes[4]);

/* cdef end */

#endif
