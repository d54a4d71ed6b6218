/* The loss of a [region] that is turned inside out: an anchor's entries lie one behind the other, x and y have not gone through
 * their logistic yet, and objectness is at 4 (AlexeyAB/darknet src/region_layer.c, hank-ai's the same). */
#include "elementary.h"
#include "losses.h"

enum { OBJECT = 4, CLASSES = 5 };

typedef struct {
    size_t anchor, i, j;
    float *output, *delta; /* entry 0 */
} place;

static float logistic(float x) {
    return 1.F / (1.F + chosen_elementary()->expf(-x));
}

static float slope_of_logistic(float y) {
    return (1 - y) * y;
}

/* What lies behind the last cell is the last cell. */
static place place_at(const loss_image *m, size_t n, size_t i, size_t j) {
    const layer *l = m->l;
    const size_t cell = j * l->w + i, last = l->h * l->w - 1;
    const size_t at = ((cell < last ? cell : last) * l->n + n) * (l->coords + 1 + l->classes);
    return (place){n, i, j, m->output + at, m->delta + at};
}

static box box_of(const loss_image *m, const place *at) {
    const layer *l = m->l;
    const precision p = l->layer_rule.arithmetic.box;
    const float *anchor = l->anchors + 2 * at->anchor;
    return (box){
        ((float)at->i + logistic(at->output[0])) / (float)l->w,
        ((float)at->j + logistic(at->output[1])) / (float)l->h,
        scaled_anchor(at->output[2], anchor[0], (float)l->w, p),
        scaled_anchor(at->output[3], anchor[1], (float)l->h, p),
    };
}

/* Gives how much the box overlaps the truth; x, where the deltas go. */
static float teach_box(const loss_image *m, const place *at, box truth, float scale) {
    const layer *l = m->l;
    const float *anchor = l->anchors + 2 * at->anchor, *output = at->output;
    const float x = logistic(output[0]), y = logistic(output[1]);
    const float w = log_of(truth.w * (float)l->w / anchor[0], m->rule->functions);
    const float h = log_of(truth.h * (float)l->h / anchor[1], m->rule->functions);
    const float iou = box_iou(box_of(m, at), truth, l->layer_rule.iou);
    at->delta[0] = scale * (truth.x * (float)l->w - (float)at->i - x) * slope_of_logistic(x);
    at->delta[1] = scale * (truth.y * (float)l->h - (float)at->j - y) * slope_of_logistic(y);
    at->delta[2] = scale * (w - output[2]);
    at->delta[3] = scale * (h - output[3]);
    return iou;
}

static void teach_nothing(const loss_image *m, const place *at) {
    const layer *l = m->l;
    const loss_options *o = m->o;
    const float object = at->output[OBJECT];
    const float *row = NULL;
    const float best = largest_region_iou(m, box_of(m, at), &row);
    m->sums->any_objectness += object;
    at->delta[OBJECT] = o->noobject_scale * (((l->classfix == -1 ? best : 0) - object) * slope_of_logistic(object));
    if (l->classfix != -1 && best > o->thresh) {
        at->delta[OBJECT] = 0;
        if (l->classfix > 0 && row) {
            const float scale = o->class_scale * (l->classfix == 2 ? object : 1);
            region_class_delta(m, at->delta + CLASSES, at->output + CLASSES, 1, (int)row[o->class_at], scale, 0);
            ++m->sums->class_count;
        }
    }
    if (is_warm_up(m)) teach_box(m, at, region_anchor_in_cell(l, at->anchor, at->i, at->j), .01F);
}

/* Where no anchor overlaps the box at all, the fork's index is left at the first cell of the first image. */
static place likest(const loss_image *m, box truth) {
    const size_t i = (size_t)(truth.x * (float)m->l->w), j = (size_t)(truth.y * (float)m->l->h);
    place best = {0, i, j, m->l->output, m->delta_of_batch};
    float best_iou = 0;
    for (size_t n = 0; n < m->l->n; ++n) {
        const place at = place_at(m, n, i, j);
        box pred = m->o->bias_match ? region_anchor(m->l, n) : box_of(m, &at);
        pred.x = pred.y = 0;
        const float iou = box_iou(pred, (box){0, 0, truth.w, truth.h}, m->l->layer_rule.iou);
        if (iou > best_iou) best_iou = iou, best = at;
    }
    return best;
}

static void teach_something(const loss_image *m, const float *row) {
    const loss_options *o = m->o;
    const box truth = box_at(row);
    const place at = likest(m, truth);
    const float iou = teach_box(m, &at, truth, o->coord_scale), object = at.output[OBJECT];
    m->sums->recall += iou > .5F;
    m->sums->iou += iou;
    m->sums->objectness += object;
    at.delta[OBJECT] = o->object_scale * ((o->rescore ? iou : 1) - object) * slope_of_logistic(object);
    region_class_delta(m, at.delta + CLASSES, at.output + CLASSES, 1, class_of(m, row), o->class_scale, 0);
    ++m->sums->count;
    ++m->sums->class_count;
}

static void teach_class(const loss_image *m, const float *row) {
    const layer *l = m->l;
    const int class_id = (int)row[m->o->class_at];
    float best = 0;
    place surest = place_at(m, 0, 0, 0);
    for (size_t k = 0; k < l->n * l->h * l->w; ++k) {
        const place at = place_at(m, k % l->n, k / l->n % l->w, k / l->n / l->w);
        const float score = at.output[OBJECT] * hierarchy_probability(at.output + CLASSES, l->softmax_tree, class_id, 1);
        if (score > best) best = score, surest = at;
    }
    region_class_delta(m, surest.delta + CLASSES, surest.output + CLASSES, 1, class_id, m->o->class_scale, 0);
    ++m->sums->class_count;
}

void flat_region_loss(const loss_image *m) {
    const layer *l = m->l;
    const float *alone = region_class_alone(m);
    if (alone) {
        teach_class(m, alone);
        return;
    }
    for (size_t k = 0; k < l->n * l->h * l->w; ++k) {
        const place at = place_at(m, k % l->n, k / l->n % l->w, k / l->n / l->w);
        teach_nothing(m, &at);
    }
    for (size_t t = 0; t < m->o->boxes && m->truth[t * m->o->row] != 0; ++t) teach_something(m, m->truth + t * m->o->row);
}
