/* The loss of [yolo] (yolo_layer.c forward_yolo_layer of pjreddie/darknet, process_batch of AlexeyAB/darknet and hank-ai/darknet).
 * First every anchor of every cell is taught that nothing is there, unless its box overlaps one of the truth; then each box of the
 * truth teaches the anchor whose sides are most like its own, in the cell of its middle, if the head has that anchor. */
#include <float.h>
#include <math.h>

#include "elementary.h"
#include "losses.h"

typedef struct {
    size_t anchor, i, j;   /* among all anchors; the cell's column and row */
    float *output, *delta; /* entry 0 */
} place;

static size_t cells_of(const layer *l) {
    return l->h * l->w;
}

/* What lies behind the last cell of all anchors is the last cell of its own. */
static place place_at(const loss_image *m, size_t n, size_t anchor, size_t i, size_t j) {
    const layer *l = m->l;
    const size_t cells = cells_of(l), flat = n * cells + j * l->w + i;
    const size_t location = flat < l->n * cells ? flat : (n + 1) * cells - 1;
    const size_t at = location / cells * (5 + l->classes) * cells + location % cells;
    return (place){anchor, i, j, m->output + at, m->delta + at};
}

static box box_of(const loss_image *m, const place *at) {
    const layer *l = m->l;
    const size_t stride = cells_of(l);
    const float *anchor = l->anchors + 2 * at->anchor, *t = at->output;
    const float w = t[2 * stride], h = t[3 * stride];
    const precision p = l->layer_rule.arithmetic.box;
    return (box){
        .x = ((float)at->i + t[0]) / (float)l->w,
        .y = ((float)at->j + t[stride]) / (float)l->h,
        .w = l->new_coords ? w * w * 4 * anchor[0] / m->o->net_w : scaled_anchor(w, anchor[0], m->o->net_w, p),
        .h = l->new_coords ? h * h * 4 * anchor[1] / m->o->net_h : scaled_anchor(h, anchor[1], m->o->net_h, p),
    };
}

static int is_number(float x) {
    return fabsf(x) <= FLT_MAX;
}

/* ---- deltas of one anchor --------------------------------------------------------------------------------------------------- */

/* What sides the output would have to tell. */
static float target_of_side(const loss_image *m, float side, float net, float anchor) {
    if (m->l->new_coords) return sqrtf(side * net / (4 * anchor));
    return log_of(side * net / anchor, m->rule->functions);
}

static void teach(const loss_image *m, float *delta, float value) {
    *delta = m->rule->box_deltas == BOX_DELTAS_ADDED ? *delta + value : value;
}

static void teach_squares(const loss_image *m, const place *at, box truth, float weight) {
    const layer *l = m->l;
    const float *anchor = l->anchors + 2 * at->anchor, scale = 2 - truth.w * truth.h;
    const float targets[4] = {
        truth.x * (float)l->w - (float)at->i,
        truth.y * (float)l->h - (float)at->j,
        target_of_side(m, truth.w, m->o->net_w, anchor[0]),
        target_of_side(m, truth.h, m->o->net_h, anchor[1]),
    };
    for (size_t k = 0; k < 4; ++k) {
        const size_t entry = k * cells_of(l);
        teach(m, at->delta + entry, scale * (targets[k] - at->output[entry]) * weight);
    }
}

static float exp_of_side(const loss_image *m, float slope, float side) {
    const elementary *e = chosen_elementary();
    if (m->l->layer_rule.arithmetic.box == PRECISION_FLOAT) return slope * e->expf(side);
    return (float)((double)slope * e->exp((double)side));
}

static void teach_overlap(const loss_image *m, const place *at, box pred, box truth, float weight) {
    const size_t stride = cells_of(m->l);
    const float limit = m->o->max_delta;
    float slopes[4];
    if (pred.w == 0) pred.w = 1;
    if (pred.h == 0) pred.h = 1;
    box_overlap_slopes(pred, truth, m->o->iou_loss, &m->l->layer_rule, slopes);
    for (size_t k = 0; k < 4; ++k) {
        float slope = slopes[k];
        if (k >= 2 && !m->l->new_coords) slope = exp_of_side(m, slope, at->output[k * stride]);
        slope *= weight;
        if (!is_number(slope)) slope = 0;
        if (slope > limit) slope = limit;
        if (slope < -limit) slope = -limit;
        teach(m, at->delta + k * stride, slope);
    }
}

/* Gives the box that was there. */
static box teach_box(const loss_image *m, const place *at, box truth, float class_weight) {
    const box pred = box_of(m, at);
    const float weight = m->o->iou_normalizer * class_weight;
    if (m->o->iou_loss == IOU_LOSS_MSE)
        teach_squares(m, at, truth, weight);
    else
        teach_overlap(m, at, pred, truth, weight);
    return pred;
}

static float weight_of(const loss_image *m, int class_id) {
    return m->l->class_weights ? m->l->class_weights[class_id] : 1;
}

static void teach_class(const loss_image *m, float *delta, float output, int is_own) {
    const float smooth = m->o->label_smooth_eps;
    float truth = is_own ? 1 : 0;
    if (smooth != 0) truth = truth * (1 - smooth) + .5F * smooth;
    const float value = truth - output;
    if (m->rule->non_numbers == NON_NUMBERS_KEPT || is_number(value)) *delta = value;
}

static void teach_classes(const loss_image *m, const place *at, int class_id, float *score) {
    const size_t stride = cells_of(m->l);
    const float *output = at->output + 5 * stride;
    float *delta = at->delta + 5 * stride;
    const size_t own = (size_t)class_id * stride;
    if (score) *score += output[own];
    if (delta[m->rule->class_mark == CLASS_MARK_OWN ? own : 0] != 0) {
        teach_class(m, delta + own, output[own], 1);
        if (m->l->class_weights) delta[own] *= weight_of(m, class_id);
        return;
    }
    const float focused = m->o->focal_loss ? .5F * focus(output[own] + (float)m->rule->probability_guard) : 0;
    for (size_t k = 0; k < m->l->classes * stride; k += stride) {
        if (m->o->focal_loss)
            delta[k] = ((k == own ? 1.F : 0.F) - output[k]) * focused;
        else
            teach_class(m, delta + k, output[k], k == own);
    }
    if (!m->o->focal_loss && m->l->class_weights) delta[own] *= weight_of(m, class_id) * m->o->cls_normalizer;
}

/* ---- every anchor of every cell --------------------------------------------------------------------------------------------- */

typedef struct {
    float any, sure; /* the largest overlap; 0 in a cell that is not sure of a class */
    const float *row;
} overlap;

static int has_sure_class(const loss_image *m, const place *at) {
    const size_t stride = cells_of(m->l);
    for (size_t k = 0; k < m->l->classes; ++k)
        if (at->output[(5 + k) * stride] > .25F) return 1;
    return 0;
}

static overlap largest_overlap(const loss_image *m, const place *at) {
    const box pred = box_of(m, at);
    overlap found = {0, 0, m->truth};
    for (size_t t = 0; t < m->o->boxes; ++t) {
        const float *row = m->truth + t * m->o->row;
        if (row[0] == 0) break;
        const float iou = box_iou(pred, box_at(row), m->l->layer_rule.iou);
        if (iou > found.any) found.any = iou, found.row = row;
    }
    found.sure = m->rule->spared == SPARED_OVERLAPPING || has_sure_class(m, at) ? found.any : 0;
    return found;
}

/* Where a box overlaps the truth by more than truth_thresh. */
static void teach_found(const loss_image *m, const place *at, overlap found) {
    const size_t stride = cells_of(m->l), object = 4 * stride;
    const float squared = found.any * found.any, normalizer = m->o->obj_normalizer;
    const int class_id = class_of(m, found.row), smooth = m->o->objectness_smooth;
    at->delta[object] = normalizer * ((smooth ? squared : 1) - at->output[object]);
    teach_classes(m, at, class_id, NULL);
    const float weight = weight_of(m, class_id);
    const size_t own = (5 + (size_t)class_id) * stride;
    if (smooth) at->delta[own] = weight * (squared - at->output[own]);
    teach_box(m, at, box_at(found.row), weight);
}

static void teach_nothing(const loss_image *m, const place *at) {
    const size_t object = 4 * cells_of(m->l);
    float *output = at->output + object, *delta = at->delta + object;
    const float normalizer = m->o->obj_normalizer;
    if (m->rule->non_numbers == NON_NUMBERS_REPLACED && !is_number(*output) && m->truth[0] != 0) *output = 0;
    const overlap found = largest_overlap(m, at);
    m->sums->any_objectness += *output;
    *delta = normalizer * (0 - *output);
    if (found.sure > m->o->ignore_thresh) {
        const float smooth = normalizer * (found.sure - *output);
        if (!m->o->objectness_smooth) *delta = 0;
        if (m->o->objectness_smooth && smooth > *delta) *delta = smooth;
    }
    if (found.any > m->o->truth_thresh) teach_found(m, at, found);
}

/* ---- the boxes of the truth ------------------------------------------------------------------------------------------------- */

static box shape_of_anchor(const loss_image *m, size_t n) {
    const float *anchor = m->l->anchors + 2 * n;
    return (box){0, 0, anchor[0] / m->o->net_w, anchor[1] / m->o->net_h};
}

/* Which of the head's anchors that of all is; their number where it is none. */
static size_t own_anchor(const layer *l, size_t n) {
    size_t k = 0;
    while (k < l->n && (size_t)l->mask[k] != n) ++k;
    return k;
}

static void teach_something(const loss_image *m, const float *row, size_t own, size_t anchor) {
    const layer *l = m->l;
    const box truth = box_at(row);
    const place at = place_at(m, own, anchor, (size_t)(truth.x * (float)l->w), (size_t)(truth.y * (float)l->h));
    const size_t object = 4 * cells_of(l);
    const int class_id = class_of(m, row);
    const float weight = weight_of(m, class_id);
    const box pred = teach_box(m, &at, truth, weight);
    const float iou = box_iou(pred, truth, l->layer_rule.iou);
    m->sums->iou += iou;
    m->sums->iou_loss += 1 - iou;
    m->sums->giou_loss += 1 - box_overlap(pred, truth, IOU_LOSS_GIOU, &l->layer_rule);
    m->sums->objectness += at.output[object];
    if (!m->o->objectness_smooth || at.delta[object] == 0)
        at.delta[object] = weight * m->o->obj_normalizer * (1 - at.output[object]);
    teach_classes(m, &at, class_id, &m->sums->class_score);
    ++m->sums->count;
    ++m->sums->class_count;
    m->sums->recall += iou > .5F;
    m->sums->recall75 += iou > .75F;
}

/* The anchor whose sides overlap the box's most, then each other of the head that overlaps it by more than iou_thresh. */
static void teach_row(const loss_image *m, const float *row) {
    const layer *l = m->l;
    const box truth = {0, 0, row[2], row[3]};
    float best_iou = 0;
    size_t best = 0;
    for (size_t n = 0; n < l->total; ++n) {
        const float iou = box_iou(shape_of_anchor(m, n), truth, l->layer_rule.iou);
        if (iou > best_iou) best_iou = iou, best = n;
    }
    if (own_anchor(l, best) < l->n) teach_something(m, row, own_anchor(l, best), best);
    for (size_t n = 0; n < l->total && m->o->iou_thresh < 1; ++n) {
        const size_t own = own_anchor(l, n);
        if (own == l->n || n == best) continue;
        const float iou = box_overlap(shape_of_anchor(m, n), truth, m->o->iou_thresh_kind, &l->layer_rule);
        if (iou > m->o->iou_thresh) teach_something(m, row, own, n);
    }
}

/* A box's delta is divided by the number of classes that it was taught. */
static void divide_by_classes(const loss_image *m, const place *at) {
    const size_t stride = cells_of(m->l);
    size_t classes = 0;
    if (at->delta[4 * stride] == 0) return;
    for (size_t k = 0; k < m->l->classes; ++k) classes += at->delta[(5 + k) * stride] > 0;
    for (size_t k = 0; k < 4 && classes; ++k) at->delta[k * stride] /= (float)classes;
}

typedef void (*teacher)(const loss_image *m, const place *at);

static void at_each_anchor(const loss_image *m, teacher teach_anchor) {
    const layer *l = m->l;
    for (size_t cell = 0; cell < cells_of(l); ++cell) {
        for (size_t n = 0; n < l->n; ++n) {
            const place at = place_at(m, n, (size_t)l->mask[n], cell % l->w, cell / l->w);
            teach_anchor(m, &at);
        }
    }
}

void yolo_loss(const loss_image *m) {
    at_each_anchor(m, teach_nothing);
    for (size_t t = 0; t < m->o->boxes && m->truth[t * m->o->row] != 0; ++t) teach_row(m, m->truth + t * m->o->row);
    if (m->o->iou_thresh < 1) at_each_anchor(m, divide_by_classes);
}

float sum_of_score_squares(const layer *l, const float *delta, size_t batch) {
    const size_t cells = cells_of(l), entries = 5 + l->classes;
    float sum = 0;
    for (size_t i = 0; i < batch * l->outputs; ++i)
        if (i / cells % entries >= 4) sum += delta[i] * delta[i];
    return sum;
}
