/* What the two losses of [region] share. */
#include "losses.h"

#include "elementary.h"

static const size_t warm_up = 12800;  /* images until which all boxes are drawn to their anchors */
static const float far_away = 100000; /* x and y of a row that tells a class of the image and no place */

int tells_class_alone(const layer *l, const float *row) {
    return l->softmax_tree && row[0] > far_away && row[1] > far_away;
}

int is_warm_up(const loss_image *m) {
    return m->seen < warm_up;
}

box region_anchor(const layer *l, size_t n) {
    return (box){0, 0, l->anchors[2 * n] / (float)l->w, l->anchors[2 * n + 1] / (float)l->h};
}

/* ---- classes ---------------------------------------------------------------------------------------------------------------- */

/* From the node upwards each group is taught. */
static void teach_branch(const loss_image *m, float *delta, const float *output, size_t stride, int class_id, float scale) {
    const tree *t = m->l->softmax_tree;
    float product = 1;
    for (int node = class_id; node >= 0; node = t->parent[node]) {
        const size_t own = (size_t)node * stride, g = t->group[node];
        product *= output[own];
        for (size_t i = t->group_offset[g]; i < t->group_offset[g] + t->group_size[g]; ++i)
            delta[i * stride] = scale * (0 - output[i * stride]);
        delta[own] = scale * (1 - output[own]);
    }
    m->sums->class_score += product;
}

void region_class_delta(const loss_image *m, float *delta, const float *output, size_t stride, int class_id, float scale,
                        int tagged) {
    if (m->l->softmax_tree) {
        teach_branch(m, delta, output, stride, class_id, scale);
        return;
    }
    const size_t own = (size_t)class_id * stride;
    if (tagged && delta[0] != 0) {
        delta[own] = scale * (1 - output[own]);
        return;
    }
    const int focal = m->o->focal_loss;
    const float focused = focal ? .5F * focus(output[own] + (float)m->rule->probability_guard) : 1;
    for (size_t k = 0; k < m->l->classes * stride; k += stride) {
        delta[k] = scale * ((k == own ? 1.F : 0.F) - output[k]);
        if (focal) delta[k] *= focused;
    }
    m->sums->class_score += output[own];
}

const float *region_class_alone(const loss_image *m) {
    for (size_t t = 0; m->l->softmax_tree && t < m->o->boxes; ++t) {
        const float *row = m->truth + t * m->o->row;
        if (row[0] == 0) return NULL;
        if (tells_class_alone(m->l, row)) return row;
    }
    return NULL;
}

float largest_region_iou(const loss_image *m, box pred, const float **row) {
    float best = 0;
    for (size_t t = 0; t < m->o->boxes && m->truth[t * m->o->row] != 0; ++t) {
        const float iou = box_iou(pred, box_at(m->truth + t * m->o->row), m->l->layer_rule.iou);
        if (iou > best) best = iou, *row = m->truth + t * m->o->row;
    }
    return best;
}

/* The halves are added in double. */
box region_anchor_in_cell(const layer *l, size_t n, size_t i, size_t j) {
    box b = region_anchor(l, n);
    b.x = (float)(((double)i + .5) / (double)l->w), b.y = (float)(((double)j + .5) / (double)l->h);
    return b;
}
