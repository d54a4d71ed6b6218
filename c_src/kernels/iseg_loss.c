/* The loss of [iseg] (pjreddie/darknet src/iseg_layer.c): each pixel of an instance is taught its class, and draws its embedding to
 * the mean of its instance's and away from those of the others, one tenth for each number whatever the distance. */
#include "losses.h"

typedef struct {
    const loss_image *m;
    size_t cells, ids;
    float *means, *counts; /* (instances, ids) and (instances) */
} instances;

/* The pixels of instance i: 0, or what they are taught. */
static const float *mask_of(const instances *s, size_t i) {
    return s->m->truth + i * s->m->o->row + 1;
}

static void teach_none(const instances *s) {
    const size_t first = s->m->l->classes * s->cells, all = first + s->ids * s->cells;
    for (size_t k = 0; k < first; ++k) s->m->delta[k] = 0 - s->m->output[k];
    for (size_t k = first; k < all; ++k) s->m->delta[k] = (float)(.1 * (double)(0 - s->m->output[k]));
}

/* Teaches each pixel its class, and gives the number of instances; the first with a class below 0 is none. */
static size_t teach_classes(const instances *s) {
    const loss_image *m = s->m;
    const float *embedding = m->output + m->l->classes * s->cells;
    size_t i = 0;
    for (; i < m->o->boxes && (int)mask_of(s, i)[-1] >= 0; ++i) {
        const size_t plane = (size_t)mask_of(s, i)[-1] * s->cells;
        float *sums = s->means + i * s->ids;
        for (size_t z = 0; z < s->ids; ++z) sums[z] = 0;
        s->counts[i] = 0;
        for (size_t k = 0; k < s->cells; ++k) {
            if (mask_of(s, i)[k] == 0) continue;
            m->delta[plane + k] = mask_of(s, i)[k] - m->output[plane + k];
            for (size_t z = 0; z < s->ids; ++z) sums[z] += embedding[z * s->cells + k];
            ++s->counts[i];
        }
        if (s->counts[i] > 0) scal_cpu(s->ids, 1.F / s->counts[i], sums);
    }
    return i;
}

static void draw(const instances *s, size_t pixel, const float *mean, int to) {
    const size_t first = s->m->l->classes * s->cells + pixel;
    for (size_t z = 0; z < s->ids; ++z) {
        const size_t k = first + z * s->cells;
        const double step = mean[z] - s->m->output[k] < 0 ? -.1 : .1;
        s->m->delta[k] = (float)((double)s->m->delta[k] + (to ? step : -step));
    }
}

static void teach_embeddings(const instances *s, size_t n) {
    for (size_t i = 0; i < n; ++i) {
        for (size_t k = 0; k < s->cells; ++k) {
            if (mask_of(s, i)[k] == 0) continue;
            for (size_t j = 0; j < n; ++j)
                if (s->counts[j] > 0) draw(s, k, s->means + j * s->ids, j == i);
        }
    }
}

void iseg_loss(const loss_image *m) {
    const layer *l = m->l;
    const size_t cells = l->h * l->w, ids = l->out_c - l->classes;
    const instances s = {m, cells, ids, m->scratch, m->scratch + m->o->boxes * ids};
    teach_none(&s);
    teach_embeddings(&s, teach_classes(&s));
    for (size_t k = l->classes * cells; k < l->outputs; ++k) m->delta[k] = (float)((double)m->delta[k] * .01);
}
