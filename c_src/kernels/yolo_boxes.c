/* The boxes of [yolo] and [Gaussian_yolo] in training: what they are, and what draws them to a box of the truth. */
#include <float.h>
#include <math.h>

#include "elementary.h"
#include "yolo.h"

#define PI 3.14159265358979323846

static size_t cells_of(const layer *l) {
    return l->h * l->w;
}

int is_gaussian(const layer *l) {
    return l->coords == 8;
}

int is_number(float x) {
    return fabsf(x) <= FLT_MAX;
}

yolo_place yolo_place_at(const loss_image *m, size_t n, size_t anchor, size_t i, size_t j) {
    const layer *l = m->l;
    const size_t cells = cells_of(l), flat = n * cells + j * l->w + i;
    const size_t location = flat < l->n * cells ? flat : (n + 1) * cells - 1;
    const size_t at = location / cells * (l->coords + 1 + l->classes) * cells + location % cells;
    return (yolo_place){anchor, i, j, m->output + at, m->delta + at};
}

/* How far entries of x, y, w and h are apart. */
static size_t step_of(const layer *l) {
    return (is_gaussian(l) ? 2 : 1) * cells_of(l);
}

/* Which way from its middle the point of a box lies that x and y tell: 0, or a corner. */
static float side_of_point(const layer *l) {
    if (!is_gaussian(l) || l->yolo_point == YOLO_POINT_CENTER) return 0;
    return l->yolo_point == YOLO_POINT_LEFT_TOP ? -1 : 1;
}

box yolo_box_of(const loss_image *m, const yolo_place *at) {
    const layer *l = m->l;
    const size_t step = step_of(l);
    const float *anchor = l->anchors + 2 * at->anchor, *t = at->output;
    const float w = t[2 * step], h = t[3 * step], side = side_of_point(l);
    const precision p = l->layer_rule.arithmetic.box;
    box b = {
        .x = ((float)at->i + t[0]) / (float)l->w,
        .y = ((float)at->j + t[step]) / (float)l->h,
        .w = l->new_coords ? w * w * 4 * anchor[0] / m->o->net_w : scaled_anchor(w, anchor[0], m->o->net_w, p),
        .h = l->new_coords ? h * h * 4 * anchor[1] / m->o->net_h : scaled_anchor(h, anchor[1], m->o->net_h, p),
    };
    if (side != 0) b.x -= side * (b.w / 2), b.y -= side * (b.h / 2);
    return b;
}

/* ---- targets ---------------------------------------------------------------------------------------------------------------- */

/* What sides the output would have to tell. */
static float target_of_side(const loss_image *m, float side, float net, float anchor) {
    if (m->l->new_coords) return sqrtf(side * net / (4 * anchor));
    return log_of(side * net / anchor, m->rule->functions);
}

/* What the output would have to tell of the truth. */
static void take_targets(const loss_image *m, const yolo_place *at, box truth, float targets[4]) {
    const layer *l = m->l;
    const float *anchor = l->anchors + 2 * at->anchor, side = side_of_point(l);
    const float x = side != 0 ? truth.x + side * (truth.w / 2) : truth.x;
    const float y = side != 0 ? truth.y + side * (truth.h / 2) : truth.y;
    targets[0] = x * (float)l->w - (float)at->i;
    targets[1] = y * (float)l->h - (float)at->j;
    targets[2] = target_of_side(m, truth.w, m->o->net_w, anchor[0]);
    targets[3] = target_of_side(m, truth.h, m->o->net_h, anchor[1]);
}

static void teach(const loss_image *m, float *delta, float value) {
    *delta = m->rule->box_deltas == BOX_DELTAS_ADDED ? *delta + value : value;
}

static void teach_squares(const loss_image *m, const yolo_place *at, box truth, float weight) {
    const float scale = 2 - truth.w * truth.h;
    float targets[4];
    take_targets(m, at, truth, targets);
    for (size_t k = 0; k < 4; ++k) {
        const size_t entry = k * cells_of(m->l);
        teach(m, at->delta + entry, scale * (targets[k] - at->output[entry]) * weight);
    }
}

/* ---- overlaps --------------------------------------------------------------------------------------------------------------- */

static float exp_of_side(const loss_image *m, float slope, float side) {
    const elementary *e = chosen_elementary();
    if (m->l->layer_rule.arithmetic.box == PRECISION_FLOAT) return slope * e->expf(side);
    return (float)((double)slope * e->exp((double)side));
}

static void take_slopes(const loss_image *m, const yolo_place *at, box pred, box truth, float slopes[4]) {
    const size_t step = step_of(m->l);
    const float side = side_of_point(m->l);
    if (pred.w == 0) pred.w = 1;
    if (pred.h == 0) pred.h = 1;
    box_overlap_slopes(pred, truth, m->o->iou_loss, &m->l->layer_rule, slopes);
    if (side != 0) slopes[0] += side * (slopes[2] / 2), slopes[1] += side * (slopes[3] / 2);
    for (size_t k = 2; k < 4; ++k)
        if (!m->l->new_coords) slopes[k] = exp_of_side(m, slopes[k], at->output[k * step]);
}

static float limited(const loss_image *m, float delta) {
    const float limit = m->o->max_delta;
    if (!is_number(delta)) return 0;
    return delta > limit ? limit : delta < -limit ? -limit : delta;
}

static void teach_overlap(const loss_image *m, const yolo_place *at, box pred, box truth, float weight) {
    float slopes[4];
    take_slopes(m, at, pred, truth, slopes);
    for (size_t k = 0; k < 4; ++k) teach(m, at->delta + k * cells_of(m->l), limited(m, slopes[k] * weight));
}

/* ---- a normal distribution around the target: gaussian_yolo_layer.c delta_gaussian_yolo_box ----------------------------------- */

typedef struct {
    float mean, deviation;
} normal_delta;

/* That of a number which is `off` from its target, by itself and by its deviation. */
static normal_delta normal(const loss_image *m, float off, float deviation, float scale) {
    const float least = .3F, guard = (float)m->rule->normal_guard, wide = deviation + least;
    const float z = off / deviation, squared = z * z;
    const float density = (float)(chosen_elementary()->exp((double)squared * -.5) / (sqrt(2 * PI) * (double)wide));
    if (m->rule->functions == PRECISION_FLOAT) {
        const float factor = .5F / (density + guard) * density * scale;
        return (normal_delta){factor * z * (1 / deviation), factor * (squared / deviation - 1 / wide)};
    }
    const float factor = (float)(.5 / (double)(density + guard) * (double)density * (double)scale);
    return (normal_delta){
        (float)((double)(factor * z) * (1. / (double)deviation)),
        (float)((double)factor * ((double)(squared / deviation) - 1. / (double)wide)),
    };
}

static void teach_normal(const loss_image *m, const yolo_place *at, box pred, box truth, float weight) {
    const size_t stride = cells_of(m->l), step = step_of(m->l);
    const float scale = 2 - truth.w * truth.h;
    float targets[4], slopes[4];
    take_targets(m, at, truth, targets);
    if (m->o->iou_loss != IOU_LOSS_MSE) take_slopes(m, at, pred, truth, slopes);
    for (size_t k = 0; k < 4; ++k) {
        const float *output = at->output + k * step;
        const normal_delta d = normal(m, targets[k] - output[0], output[stride], scale);
        const float mean = m->o->iou_loss != IOU_LOSS_MSE ? slopes[k] : d.mean;
        teach(m, at->delta + k * step, limited(m, mean * weight));
        teach(m, at->delta + k * step + stride, limited(m, d.deviation * m->o->uc_normalizer));
    }
}

box teach_yolo_box(const loss_image *m, const yolo_place *at, box truth, float class_weight) {
    const box pred = yolo_box_of(m, at);
    const float weight = m->o->iou_normalizer * class_weight;
    if (is_gaussian(m->l))
        teach_normal(m, at, pred, truth, weight);
    else if (m->o->iou_loss == IOU_LOSS_MSE)
        teach_squares(m, at, truth, weight);
    else
        teach_overlap(m, at, pred, truth, weight);
    return pred;
}
