/* The loss of a [region] of planes: an anchor's entries are h*w apart (pjreddie/darknet src/region_layer.c). */
#include "losses.h"

static size_t cells_of(const layer *l) {
    return l->h * l->w;
}

static size_t entries_of(const layer *l) {
    return l->coords + 1 + l->classes;
}

/* ---- planes ----------------------------------------------------------------------------------------------------------------- */

typedef struct {
    size_t anchor, i, j;
    float *output, *delta; /* entry 0 */
} place;

/* What lies behind the last cell of all anchors is the last cell of its own. */
static place plane_at(const loss_image *m, size_t n, size_t i, size_t j) {
    const size_t cells = cells_of(m->l), flat = n * cells + j * m->l->w + i;
    const size_t location = flat < m->l->n * cells ? flat : (n + 1) * cells - 1;
    const size_t at = location / cells * entries_of(m->l) * cells + location % cells;
    return (place){n, i, j, m->output + at, m->delta + at};
}

static box plane_box(const loss_image *m, const place *at) {
    const layer *l = m->l;
    const size_t stride = cells_of(l);
    const precision p = l->layer_rule.arithmetic.box;
    const float *anchor = l->anchors + 2 * at->anchor;
    return (box){
        ((float)at->i + at->output[0]) / (float)l->w,
        ((float)at->j + at->output[stride]) / (float)l->h,
        scaled_anchor(at->output[2 * stride], anchor[0], (float)l->w, p),
        scaled_anchor(at->output[3 * stride], anchor[1], (float)l->h, p),
    };
}

/* Gives how much the box overlaps the truth. */
static float teach_plane_box(const loss_image *m, const place *at, box truth, float scale) {
    const layer *l = m->l;
    const float *anchor = l->anchors + 2 * at->anchor;
    const float targets[4] = {
        truth.x * (float)l->w - (float)at->i,
        truth.y * (float)l->h - (float)at->j,
        log_of(truth.w * (float)l->w / anchor[0], m->rule->functions),
        log_of(truth.h * (float)l->h / anchor[1], m->rule->functions),
    };
    const float iou = box_iou(plane_box(m, at), truth, l->layer_rule.iou);
    for (size_t k = 0; k < 4; ++k) {
        const size_t entry = k * cells_of(l);
        at->delta[entry] = scale * (targets[k] - at->output[entry]);
    }
    return iou;
}

static void teach_plane_nothing(const loss_image *m, const place *at) {
    const layer *l = m->l;
    const size_t object = l->coords * cells_of(l);
    const float output = at->output[object];
    const float *row = NULL;
    const float best = largest_region_iou(m, plane_box(m, at), &row);
    m->sums->any_objectness += output;
    at->delta[object] = m->o->noobject_scale * ((l->background ? 1 : 0) - output);
    if (best > m->o->thresh) at->delta[object] = 0;
    if (is_warm_up(m)) teach_plane_box(m, at, region_anchor_in_cell(l, at->anchor, at->i, at->j), .01F);
}

static size_t likest_plane(const loss_image *m, box truth, size_t i, size_t j) {
    float best_iou = 0;
    size_t best = 0;
    for (size_t n = 0; n < m->l->n; ++n) {
        const place at = plane_at(m, n, i, j);
        box pred = m->o->bias_match ? region_anchor(m->l, n) : plane_box(m, &at);
        pred.x = pred.y = 0;
        const float iou = box_iou(pred, (box){0, 0, truth.w, truth.h}, m->l->layer_rule.iou);
        if (iou > best_iou) best_iou = iou, best = n;
    }
    return best;
}

static void teach_plane(const loss_image *m, const float *row) {
    const layer *l = m->l;
    const loss_options *o = m->o;
    const size_t stride = cells_of(l), object = l->coords * stride, first = object + stride;
    const box truth = box_at(row);
    const size_t i = (size_t)(truth.x * (float)l->w), j = (size_t)(truth.y * (float)l->h);
    const place at = plane_at(m, likest_plane(m, truth, i, j), i, j);
    const float iou = teach_plane_box(m, &at, truth, o->coord_scale * (2 - truth.w * truth.h));
    for (size_t k = 4; k < l->coords; ++k) at.delta[k * stride] = (float)o->mask_scale * (row[5 + k - 4] - at.output[k * stride]);
    m->sums->recall += iou > .5F;
    m->sums->iou += iou;
    m->sums->objectness += at.output[object];
    const float wanted = l->background ? 0 : o->rescore ? iou : 1;
    at.delta[object] = o->object_scale * (wanted - at.output[object]);
    region_class_delta(m, at.delta + first, at.output + first, stride, class_of(m, row), o->class_scale, !l->softmax);
    ++m->sums->count;
    ++m->sums->class_count;
}

/* Objectness of all is taught to be none, but that of the anchor that is surest. */
static void teach_plane_class(const loss_image *m, const float *row) {
    const layer *l = m->l;
    const size_t stride = cells_of(l), object = l->coords * stride, first = object + stride;
    const int class_id = (int)row[m->o->class_at];
    float best = 0;
    place surest = plane_at(m, 0, 0, 0);
    for (size_t k = 0; k < l->n * stride; ++k) {
        const place at = plane_at(m, k / stride, k % stride % l->w, k % stride / l->w);
        const float score = at.output[object] * hierarchy_probability(at.output + first, l->softmax_tree, class_id, stride);
        at.delta[object] = m->o->noobject_scale * (0 - at.output[object]);
        if (score > best) best = score, surest = at;
    }
    region_class_delta(m, surest.delta + first, surest.output + first, stride, class_id, m->o->class_scale, !l->softmax);
    surest.delta[object] = 0;
    ++m->sums->class_count;
}

void planar_region_loss(const loss_image *m) {
    const layer *l = m->l;
    const float *alone = region_class_alone(m);
    if (alone) {
        teach_plane_class(m, alone);
        return;
    }
    for (size_t cell = 0; cell < cells_of(l); ++cell) {
        for (size_t n = 0; n < l->n; ++n) {
            const place at = plane_at(m, n, cell % l->w, cell / l->w);
            teach_plane_nothing(m, &at);
        }
    }
    for (size_t t = 0; t < m->o->boxes && m->truth[t * m->o->row] != 0; ++t) teach_plane(m, m->truth + t * m->o->row);
}
