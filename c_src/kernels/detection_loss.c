/* The loss of [detection] (src/detection_layer.c of pjreddie/darknet and AlexeyAB/darknet): in a cell with an object the box that
 * overlaps it most, or without any overlap the nearest, is taught to be it; every other is taught to be none. */
#include <math.h>

#include "losses.h"

static const size_t random_until = 64000; /* images for which a box is taken at random, if that is asked for */

/* Where in its arrays one cell lies. */
typedef struct {
    const float *truth;                 /* 0 or 1, classes, box */
    size_t at, classes, objects, boxes; /* number of the cell; the first value of each kind */
} cell;

static box squared(const loss_image *m, box b) {
    const float side = (float)m->l->side;
    b.x /= side, b.y /= side;
    if (m->l->sqrt) b.w = b.w * b.w, b.h = b.h * b.h;
    return b;
}

static float distance(box a, box b) {
    const double x = (double)(a.x - b.x), y = (double)(a.y - b.y), w = (double)(a.w - b.w), h = (double)(a.h - b.h);
    return (float)sqrt(x * x + y * y + w * w + h * h);
}

/* A number that depends on the cell and the step alone, so that training goes on from a checkpoint as it would have gone. */
static size_t drawn(const loss_image *m, const cell *c) {
    unsigned long long x = (unsigned long long)(m->seen + m->image) * 0x9e3779b97f4a7c15ULL + c->at;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
    return (size_t)((x ^ x >> 31) % m->l->n);
}

static box truth_of(const loss_image *m, const cell *c) {
    const float side = (float)m->l->side;
    box truth = box_at(c->truth + 1 + m->l->classes);
    truth.x /= side, truth.y /= side;
    return truth;
}

static size_t responsible(const loss_image *m, const cell *c) {
    const layer *l = m->l;
    const box truth = truth_of(m, c);
    float best_iou = 0, best_distance = 20;
    size_t best = 0;
    for (size_t k = 0; k < l->n; ++k) {
        const box out = squared(m, box_at(m->output + c->boxes + k * l->coords));
        const float iou = box_iou(out, truth, l->layer_rule.iou), away = distance(out, truth);
        if (best_iou > 0 || iou > 0) {
            if (iou > best_iou) best_iou = iou, best = k;
        } else if (away < best_distance) {
            best_distance = away, best = k;
        }
    }
    if (m->o->forced) best = (double)(truth.w * truth.h) < .1 && l->n > 1;
    return m->o->random && m->seen < random_until ? drawn(m, c) : best;
}

static void teach_nothing(const loss_image *m, const cell *c) {
    for (size_t k = c->objects; k < c->objects + m->l->n; ++k) {
        m->delta[k] = m->o->noobject_scale * (0 - m->output[k]);
        m->sums->any_objectness += m->output[k];
    }
}

static void teach_classes(const loss_image *m, const cell *c) {
    for (size_t k = 0; k < m->l->classes; ++k) {
        const float output = m->output[c->classes + k], truth = c->truth[1 + k];
        m->delta[c->classes + k] = m->o->class_scale * (truth - output);
        if (truth != 0) m->sums->class_score += output;
        m->sums->any_class_score += output;
    }
}

static void teach_box(const loss_image *m, const cell *c) {
    const layer *l = m->l;
    const size_t best = responsible(m, c), object = c->objects + best;
    const float *output = m->output + c->boxes + best * l->coords, *truth = c->truth + 1 + l->classes;
    float *delta = m->delta + c->boxes + best * l->coords;
    const float iou = box_iou(squared(m, box_at(output)), truth_of(m, c), l->layer_rule.iou);
    m->sums->objectness += m->output[object];
    m->delta[object] = (float)((double)m->o->object_scale * (1. - (double)m->output[object]));
    if (m->o->rescore) m->delta[object] = m->o->object_scale * (iou - m->output[object]);
    for (size_t k = 0; k < 4; ++k) {
        delta[k] = m->o->coord_scale * (truth[k] - output[k]);
        if (k >= 2 && l->sqrt) delta[k] = (float)((double)m->o->coord_scale * (sqrt((double)truth[k]) - (double)output[k]));
    }
    m->sums->iou += iou;
    ++m->sums->count;
}

void detection_loss(const loss_image *m) {
    const layer *l = m->l;
    const size_t cells = l->side * l->side;
    for (size_t i = 0; i < cells; ++i) {
        const cell c = {
            .truth = m->truth + i * (1 + l->coords + l->classes),
            .at = i,
            .classes = i * l->classes,
            .objects = cells * l->classes + i * l->n,
            .boxes = cells * (l->classes + l->n) + i * l->n * l->coords,
        };
        teach_nothing(m, &c);
        if ((int)c.truth[0] == 0) continue;
        teach_classes(m, &c);
        teach_box(m, &c);
    }
}
