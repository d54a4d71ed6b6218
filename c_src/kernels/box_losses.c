/* How much two boxes overlap, and how that changes with the sides of the first. Floats are floats and doubles doubles where the
 * forks' sources have them so; atan is the system's. */
#include <math.h>

#include "elementary.h"
#include "losses.h"

#define PI 3.14159265358979323846

enum { TOP, BOTTOM, LEFT, RIGHT, SIDES };

static void edges(box b, float e[SIDES]) {
    e[TOP] = b.y - b.h / 2, e[BOTTOM] = b.y + b.h / 2;
    e[LEFT] = b.x - b.w / 2, e[RIGHT] = b.x + b.w / 2;
}

/* Width and height of the smallest box around both. */
static void hull(box a, box b, float *w, float *h) {
    float first[SIDES], second[SIDES];
    edges(a, first), edges(b, second);
    *w = fmaxf(first[RIGHT], second[RIGHT]) - fminf(first[LEFT], second[LEFT]);
    *h = fmaxf(first[BOTTOM], second[BOTTOM]) - fminf(first[TOP], second[TOP]);
}

/* ---- overlaps: box.c of AlexeyAB's fork ------------------------------------------------------------------------------------- */

static float intersection(box a, box b) {
    float first[SIDES], second[SIDES];
    edges(a, first), edges(b, second);
    const float left = first[LEFT] > second[LEFT] ? first[LEFT] : second[LEFT];
    const float right = first[RIGHT] < second[RIGHT] ? first[RIGHT] : second[RIGHT];
    const float top = first[TOP] > second[TOP] ? first[TOP] : second[TOP];
    const float bottom = first[BOTTOM] < second[BOTTOM] ? first[BOTTOM] : second[BOTTOM];
    const float w = right - left, h = bottom - top;
    return w < 0 || h < 0 ? 0 : w * h;
}

static float giou(box a, box b, const layer_rule *rule) {
    float w, h;
    hull(a, b, &w, &h);
    const float c = w * h, overlap = box_iou(a, b, rule->iou);
    if (c == 0) return overlap;
    const float u = a.w * a.h + b.w * b.h - intersection(a, b);
    return overlap - (c - u) / c;
}

/* The difference of the angles of two boxes' diagonals, of the second less the first. */
static double angle_between(box pred, box truth, precision p) {
    const float first = pred.w / pred.h, second = truth.w / truth.h;
    if (p == PRECISION_FLOAT) return (double)(atanf(second) - atanf(first));
    return atan((double)second) - atan((double)first);
}

/* 4/pi^2 times its square, and what that is weighed with */
static float shape_loss(double angle) {
    return (float)(4 / (PI * PI) * angle * angle);
}

static float shape_weight(float loss, float overlap, double guard) {
    return (float)((double)loss / ((double)(1 - overlap + loss) + guard));
}

static float ciou(box a, box b, const layer_rule *rule) {
    float w, h;
    hull(a, b, &w, &h);
    const float c = w * w + h * h, overlap = box_iou(a, b, rule->iou);
    if (c == 0) return overlap;
    const float d = ((a.x - b.x) * (a.x - b.x) + (a.y - b.y) * (a.y - b.y)) / c;
    const float shape = shape_loss(angle_between(a, b, rule->losses.functions));
    return overlap - (d + shape_weight(shape, overlap, rule->losses.aspect_guard) * shape);
}

float box_overlap(box a, box b, iou_loss kind, const layer_rule *rule) {
    switch (kind) {
        case IOU_LOSS_GIOU: return giou(a, b, rule);
        case IOU_LOSS_DIOU: return box_diou(a, b, rule->iou);
        case IOU_LOSS_CIOU: return ciou(a, b, rule);
        default: return box_iou(a, b, rule->iou);
    }
}

/* ---- slopes: dx_box_iou of box.c -------------------------------------------------------------------------------------------- */

typedef struct {
    float pred[SIDES], truth[SIDES]; /* pred: ordered */
    int upright, ordered;            /* as top lies above bottom, left before right */
    float w, h, area, sum;           /* of the intersection, of the union */
    float of_area[SIDES], of_sum[SIDES];
} meeting;

static meeting meet(box pred, box truth) {
    meeting m;
    float e[SIDES];
    edges(pred, e), edges(truth, m.truth);
    m.upright = e[TOP] < e[BOTTOM], m.ordered = e[LEFT] < e[RIGHT];
    m.pred[TOP] = fminf(e[TOP], e[BOTTOM]), m.pred[BOTTOM] = fmaxf(e[TOP], e[BOTTOM]);
    m.pred[LEFT] = fminf(e[LEFT], e[RIGHT]), m.pred[RIGHT] = fmaxf(e[LEFT], e[RIGHT]);
    const float pred_h = m.pred[BOTTOM] - m.pred[TOP], pred_w = m.pred[RIGHT] - m.pred[LEFT];
    const float other = (m.truth[BOTTOM] - m.truth[TOP]) * (m.truth[RIGHT] - m.truth[LEFT]);
    m.h = fminf(m.pred[BOTTOM], m.truth[BOTTOM]) - fmaxf(m.pred[TOP], m.truth[TOP]);
    m.w = fminf(m.pred[RIGHT], m.truth[RIGHT]) - fmaxf(m.pred[LEFT], m.truth[LEFT]);
    m.area = m.w * m.h;
    m.sum = pred_h * pred_w + other - m.area;
    const float of_pred[SIDES] = {-1 * pred_w, pred_w, -1 * pred_h, pred_h};
    m.of_area[TOP] = m.pred[TOP] > m.truth[TOP] ? -1 * m.w : 0;
    m.of_area[BOTTOM] = m.pred[BOTTOM] < m.truth[BOTTOM] ? m.w : 0;
    m.of_area[LEFT] = m.pred[LEFT] > m.truth[LEFT] ? -1 * m.h : 0;
    m.of_area[RIGHT] = m.pred[RIGHT] < m.truth[RIGHT] ? m.h : 0;
    for (size_t i = 0; i < SIDES; ++i) m.of_sum[i] = of_pred[i] - m.of_area[i];
    return m;
}

/* Of area / sum. Where a side is 0 long the second pair takes what the first has become. */
static void iou_slopes(const meeting *m, float p[SIDES]) {
    for (size_t i = 0; i < SIDES; ++i)
        p[i] = m->sum > 0 ? ((m->sum * m->of_area[i]) - (m->area * m->of_sum[i])) / (m->sum * m->sum) : 0;
    p[TOP] = m->upright ? p[TOP] : p[BOTTOM];
    p[BOTTOM] = m->upright ? p[BOTTOM] : p[TOP];
    p[LEFT] = m->ordered ? p[LEFT] : p[RIGHT];
    p[RIGHT] = m->ordered ? p[RIGHT] : p[LEFT];
}

/* Boxes that do not meet have no other slope than that of the box around both. */
static void add_giou_slopes(const meeting *m, float p[SIDES]) {
    const float w = fmaxf(m->pred[RIGHT], m->truth[RIGHT]) - fminf(m->pred[LEFT], m->truth[LEFT]);
    const float h = fmaxf(m->pred[BOTTOM], m->truth[BOTTOM]) - fminf(m->pred[TOP], m->truth[TOP]);
    const float c = w * h;
    const float of_hull[SIDES] = {
        m->pred[TOP] < m->truth[TOP] ? -1 * w : 0,
        m->pred[BOTTOM] > m->truth[BOTTOM] ? w : 0,
        m->pred[LEFT] < m->truth[LEFT] ? -1 * h : 0,
        m->pred[RIGHT] > m->truth[RIGHT] ? h : 0,
    };
    for (size_t i = 0; i < SIDES; ++i) {
        const float slope = ((c * m->of_sum[i]) - (m->sum * of_hull[i])) / (c * c);
        if (c > 0) p[i] += slope;
        if (m->w <= 0 || m->h <= 0) p[i] = slope;
    }
}

/* Of the squared distance of the middles over the squared diagonal of the hull; shape: by w and h. */
static void add_distance_slopes(const meeting *m, box pred, box truth, const float shape[2], float slopes[4]) {
    float w, h;
    hull(pred, truth, &w, &h);
    const float c = w * w + h * h;
    const float s = (pred.x - truth.x) * (pred.x - truth.x) + (pred.y - truth.y) * (pred.y - truth.y);
    const float left = m->pred[LEFT]<m->truth[LEFT], right = m->pred[RIGHT]> m->truth[RIGHT];
    const float top = m->pred[TOP]<m->truth[TOP], bottom = m->pred[BOTTOM]> m->truth[BOTTOM];
    const float of_w[4] = {right - left, 0, right / 2 + left / 2, 0}, of_h[4] = {0, bottom - top, 0, bottom / 2 + top / 2};
    const float away[2] = {truth.x - pred.x, truth.y - pred.y};
    for (size_t i = 0; i < 4; ++i) {
        const float of_diagonal = (2 * w * of_w[i] + 2 * h * of_h[i]) * s;
        const float slope = i < 2 ? (2 * away[i] * c - of_diagonal) / (c * c) : of_diagonal / (c * c) + shape[i - 2];
        if (c > 0) slopes[i] += slope;
        if (m->w <= 0 || m->h <= 0) slopes[i] = slope;
    }
}

void box_overlap_slopes(box pred, box truth, iou_loss kind, const layer_rule *rule, float slopes[4]) {
    const meeting m = meet(pred, truth);
    float p[SIDES], shape[2] = {0, 0};
    iou_slopes(&m, p);
    if (kind == IOU_LOSS_GIOU) add_giou_slopes(&m, p);
    slopes[0] = p[LEFT] + p[RIGHT], slopes[1] = p[TOP] + p[BOTTOM];
    slopes[2] = p[RIGHT] - p[LEFT], slopes[3] = p[BOTTOM] - p[TOP];
    if (kind == IOU_LOSS_CIOU) {
        const double angle = angle_between(pred, truth, rule->losses.functions);
        const float weight = shape_weight(shape_loss(angle), m.area / m.sum, rule->losses.aspect_guard);
        shape[0] = weight * (float)(8 / (PI * PI) * angle * (double)pred.h);
        shape[1] = weight * (float)(-8 / (PI * PI) * angle * (double)pred.w);
    }
    if (kind == IOU_LOSS_DIOU || kind == IOU_LOSS_CIOU) add_distance_slopes(&m, pred, truth, shape, slopes);
}
