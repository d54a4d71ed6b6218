/* The loss of [yolo] (yolo_layer.c forward_yolo_layer of pjreddie/darknet, process_batch of AlexeyAB/darknet and hank-ai/darknet) and
 * of [Gaussian_yolo] (AlexeyAB's gaussian_yolo_layer.c), which differs in some steps whatever the rule says.
 * First every anchor of every cell is taught that nothing is there, unless its box overlaps one of the truth; then each box of the
 * truth teaches the anchor whose sides are most like its own, in the cell of its middle, if the head has that anchor. */
#include "yolo.h"

static size_t cells_of(const layer *l) {
    return l->h * l->w;
}

static size_t object_of(const layer *l) {
    return l->coords * cells_of(l);
}

static size_t classes_of(const layer *l) {
    return (l->coords + 1) * cells_of(l);
}

static int replaces_non_numbers(const loss_image *m) {
    return m->rule->non_numbers == NON_NUMBERS_REPLACED && !is_gaussian(m->l);
}

/* ---- classes ---------------------------------------------------------------------------------------------------------------- */

static float weight_of(const loss_image *m, int class_id) {
    return m->l->class_weights ? m->l->class_weights[class_id] : 1;
}

static void teach_class(const loss_image *m, float *delta, float output, int is_own) {
    const float smooth = m->o->label_smooth_eps;
    float truth = is_own ? 1 : 0;
    if (smooth != 0) truth = truth * (1 - smooth) + .5F * smooth;
    const float value = truth - output;
    if (!replaces_non_numbers(m) || is_number(value)) *delta = value;
}

static void teach_classes(const loss_image *m, const yolo_place *at, int class_id, float *score) {
    const size_t stride = cells_of(m->l);
    const float *output = at->output + classes_of(m->l);
    float *delta = at->delta + classes_of(m->l);
    const size_t own = (size_t)class_id * stride;
    const int by_first = is_gaussian(m->l) || m->rule->class_mark == CLASS_MARK_FIRST;
    if (score) *score += output[own];
    if (delta[by_first ? 0 : own] != 0) {
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

static int has_sure_class(const loss_image *m, const yolo_place *at) {
    const float *output = at->output + classes_of(m->l);
    for (size_t k = 0; k < m->l->classes; ++k)
        if (output[k * cells_of(m->l)] > .25F) return 1;
    return 0;
}

static overlap largest_overlap(const loss_image *m, const yolo_place *at) {
    const box pred = yolo_box_of(m, at);
    overlap found = {0, 0, m->truth};
    for (size_t t = 0; t < m->o->boxes; ++t) {
        const float *row = m->truth + t * m->o->row;
        if (row[0] == 0) break;
        const float iou = box_iou(pred, box_at(row), m->l->layer_rule.iou);
        if (iou > found.any) found.any = iou, found.row = row;
    }
    if (found.any > 0 && (m->rule->spared == SPARED_OVERLAPPING || has_sure_class(m, at))) found.sure = found.any;
    return found;
}

/* Where a box overlaps the truth by more than truth_thresh. */
static void teach_found(const loss_image *m, const yolo_place *at, overlap found) {
    const size_t object = object_of(m->l);
    const float squared = found.any * found.any, normalizer = m->o->obj_normalizer;
    const int class_id = class_of(m, found.row), smooth = m->o->objectness_smooth;
    at->delta[object] = normalizer * ((smooth ? squared : 1) - at->output[object]);
    teach_classes(m, at, class_id, NULL);
    const float weight = weight_of(m, class_id);
    const size_t own = classes_of(m->l) + (size_t)class_id * cells_of(m->l);
    if (smooth) at->delta[own] = weight * (squared - at->output[own]);
    teach_yolo_box(m, at, box_at(found.row), weight);
}

/* Where a box overlaps the truth by more than ignore_thresh. */
static void spare(const loss_image *m, const yolo_place *at, overlap found) {
    const float output = at->output[object_of(m->l)], normalizer = m->o->obj_normalizer;
    float *delta = at->delta + object_of(m->l);
    if (!m->o->objectness_smooth) {
        *delta = 0;
    } else if (is_gaussian(m->l)) {
        *delta = normalizer * (found.sure * found.sure - output);
        teach_classes(m, at, class_of(m, found.row), NULL);
    } else if (normalizer * (found.sure - output) > *delta) {
        *delta = normalizer * (found.sure - output);
    }
}

static void teach_nothing(const loss_image *m, const yolo_place *at) {
    float *output = at->output + object_of(m->l);
    if (replaces_non_numbers(m) && !is_number(*output) && m->truth[0] != 0) *output = 0;
    const overlap found = largest_overlap(m, at);
    m->sums->any_objectness += *output;
    at->delta[object_of(m->l)] = m->o->obj_normalizer * (0 - *output);
    if (found.sure > m->o->ignore_thresh) spare(m, at, found);
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

/* The first of `cells` cells for a negative x, the last for one beyond. */
static size_t cell_within(float x, size_t cells) {
    const float last = (float)(cells - 1), within = x > 0 ? x : 0;
    return (size_t)(last < within ? last : within);
}

/* The cell of a box's middle, or of the corner that a head tells. */
static yolo_place place_of(const loss_image *m, box truth, size_t own, size_t anchor) {
    const layer *l = m->l;
    const float w = (float)l->w, h = (float)l->h;
    if (!is_gaussian(l) || l->yolo_point == YOLO_POINT_CENTER)
        return yolo_place_at(m, own, anchor, (size_t)(truth.x * w), (size_t)(truth.y * h));
    const float side = l->yolo_point == YOLO_POINT_LEFT_TOP ? -1 : 1;
    const float x = truth.x + side * (truth.w / 2), y = truth.y + side * (truth.h / 2);
    return yolo_place_at(m, own, anchor, cell_within(x * w, l->w), cell_within(y * h, l->h));
}

static void add_overlap(loss_sums *sums, float iou) {
    sums->iou += iou;
    sums->recall += iou > .5F;
    sums->recall75 += iou > .75F;
    ++sums->count;
    ++sums->class_count;
}

static void teach_something(const loss_image *m, const float *row, size_t own, size_t anchor) {
    const layer *l = m->l;
    const box truth = box_at(row);
    const yolo_place at = place_of(m, truth, own, anchor);
    const size_t object = object_of(l);
    const int class_id = class_of(m, row), smooth = m->o->objectness_smooth && !is_gaussian(l);
    const float weight = weight_of(m, class_id);
    const box pred = teach_yolo_box(m, &at, truth, weight);
    const float iou = box_iou(pred, truth, l->layer_rule.iou), giou = box_overlap(pred, truth, IOU_LOSS_GIOU, &l->layer_rule);
    add_overlap(m->sums, is_gaussian(l) && m->o->iou_loss != IOU_LOSS_MSE ? giou : iou);
    m->sums->iou_loss += 1 - iou;
    m->sums->giou_loss += 1 - giou;
    m->sums->objectness += at.output[object];
    if (!smooth || at.delta[object] == 0) at.delta[object] = weight * m->o->obj_normalizer * (1 - at.output[object]);
    teach_classes(m, &at, class_id, &m->sums->class_score);
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
static void divide_by_classes(const loss_image *m, const yolo_place *at) {
    const size_t stride = cells_of(m->l);
    size_t classes = 0;
    if (!is_gaussian(m->l) && at->delta[object_of(m->l)] == 0) return;
    for (size_t k = 0; k < m->l->classes; ++k) classes += at->delta[classes_of(m->l) + k * stride] > 0;
    for (size_t k = 0; k < m->l->coords && classes; ++k) at->delta[k * stride] /= (float)classes;
}

typedef void (*teacher)(const loss_image *m, const yolo_place *at);

static void at_each_anchor(const loss_image *m, teacher teach_anchor) {
    const layer *l = m->l;
    for (size_t cell = 0; cell < cells_of(l); ++cell) {
        for (size_t n = 0; n < l->n; ++n) {
            const yolo_place at = yolo_place_at(m, n, (size_t)l->mask[n], cell % l->w, cell / l->w);
            teach_anchor(m, &at);
        }
    }
}

void yolo_loss(const loss_image *m) {
    at_each_anchor(m, teach_nothing);
    for (size_t t = 0; t < m->o->boxes && m->truth[t * m->o->row] != 0; ++t) teach_row(m, m->truth + t * m->o->row);
    if (m->o->iou_thresh < 1 || is_gaussian(m->l)) at_each_anchor(m, divide_by_classes);
}

float sum_of_squares_without(const layer *l, const float *delta, size_t batch, size_t first, size_t n) {
    const size_t cells = cells_of(l), entries = l->coords + 1 + l->classes;
    float sum = 0;
    for (size_t plane = 0; plane < batch * l->n * entries; ++plane, delta += cells)
        for (size_t i = 0; i < cells && (plane % entries < first || plane % entries >= first + n); ++i) sum += delta[i] * delta[i];
    return sum;
}
