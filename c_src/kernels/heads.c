/* Detections out of the heads' outputs. Floats are floats and doubles doubles where the forks' sources have them so, since one
 * rounding more changes which box is kept. */
#include <string.h>

#include "../internal.h"
#include "elementary.h"
#include "kernels.h"

typedef struct {
    size_t anchor, cell;
} slot;

static size_t cells_of(const layer *l) {
    return l->side ? l->side * l->side : l->h * l->w;
}

static slot slot_at(const layer *l, size_t k, scan order) {
    if (order == SCAN_CELLS_OUTER) return (slot){.anchor = k % l->n, .cell = k / l->n};
    return (slot){.anchor = k / cells_of(l), .cell = k % cells_of(l)};
}

static void set_origin(const detection_rows *rows, size_t row, slot s) {
    rows->origins[row] = (detection_origin){.anchor = (int)s.anchor, .cell = (int)s.cell};
}

/* Entry 0 of a slot in a planar output (batch, n, coords + 1 + classes, h*w); entry e lies e*h*w behind it. */
static const float *planar_entries(const layer *l, size_t b, slot s) {
    return l->output + b * l->outputs + s.anchor * (l->coords + 1 + l->classes) * cells_of(l) + s.cell;
}

float scaled_anchor(float t, float anchor, float size, precision p) {
    const elementary *m = chosen_elementary();
    if (p == PRECISION_DOUBLE) return (float)(m->exp((double)t) * anchor / size);
    return m->expf(t) * anchor / size;
}

/* x = (column + tx)/w, y = (row + ty)/h. Width and height stay 0. All forks: get_yolo_box, get_region_box. */
static box centre_in_cell(const layer *l, size_t cell, float tx, float ty) {
    return (box){
        .x = ((float)(cell % l->w) + tx) / (float)l->w,
        .y = ((float)(cell / l->w) + ty) / (float)l->h,
    };
}

/* probs[k] = factor*classes[k*stride] where that is over thresh, else 0; so is a NaN. */
static void fill_probs(float *probs, const float *classes, size_t n, size_t stride, float factor, float thresh) {
    for (size_t k = 0; k < n; ++k) {
        const float prob = factor * classes[k * stride];
        probs[k] = prob > thresh ? prob : 0;
    }
}

/* ---- [yolo] ----------------------------------------------------------------------------------------------------------------- */

size_t yolo_num_detections(const layer *l, size_t b, float thresh) {
    size_t count = 0;
    for (size_t k = 0; k < cells_of(l) * l->n; ++k)
        count += planar_entries(l, b, slot_at(l, k, SCAN_CELLS_OUTER))[l->coords * cells_of(l)] > thresh; /* false for NaN */
    return count;
}

/* w = exp(tw)*anchor/netw, or with new_coords tw*tw*4*anchor/netw, a float after each step. Source: AlexeyAB yolo_layer.c
 * get_yolo_box; pjreddie's is the first form. */
static box yolo_box(const layer *l, slot s, const float *t, const decoding *d) {
    const size_t stride = cells_of(l);
    const float *anchor = l->anchors + 2 * (size_t)l->mask[s.anchor];
    const precision p = l->layer_rule.arithmetic.box;
    const float tw = t[2 * stride], th = t[3 * stride];
    box b = centre_in_cell(l, s.cell, t[0], t[stride]);
    b.w = l->new_coords ? tw * tw * 4 * anchor[0] / (float)d->w : scaled_anchor(tw, anchor[0], (float)d->w, p);
    b.h = l->new_coords ? th * th * 4 * anchor[1] / (float)d->h : scaled_anchor(th, anchor[1], (float)d->h, p);
    return b;
}

/* Source: AlexeyAB yolo_layer.c get_yolo_detections; order also hank-ai yolo_layer.cpp yolo_num_detections_v3. */
void get_yolo_detections(const layer *l, size_t b, const decoding *d, const detection_rows *rows) {
    const size_t stride = cells_of(l);
    size_t row = 0;
    for (size_t k = 0; k < stride * l->n; ++k) {
        const slot s = slot_at(l, k, l->layer_rule.scan);
        const float *entries = planar_entries(l, b, s);
        const float object = entries[4 * stride];
        if (!(object > d->thresh)) continue;
        rows->boxes[row] = yolo_box(l, s, entries, d);
        rows->objectness[row] = object;
        set_origin(rows, row, s);
        fill_probs(rows->probs + row * l->classes, entries + 5 * stride, l->classes, stride, object, d->thresh);
        ++row;
    }
}

/* ---- [Gaussian_yolo]: x, y, w and h each with an uncertainty behind it ------------------------------------------------------ */

/* x and y are those of the centre or of a corner. Source: AlexeyAB gaussian_yolo_layer.c get_gaussian_yolo_box. */
static box gaussian_yolo_box(const layer *l, slot s, const float *t, const decoding *d) {
    const size_t stride = cells_of(l);
    const float *anchor = l->anchors + 2 * (size_t)l->mask[s.anchor];
    const precision p = l->layer_rule.arithmetic.box;
    box b = centre_in_cell(l, s.cell, t[0], t[2 * stride]);
    b.w = scaled_anchor(t[4 * stride], anchor[0], (float)d->w, p);
    b.h = scaled_anchor(t[6 * stride], anchor[1], (float)d->h, p);
    if (l->yolo_point == YOLO_POINT_LEFT_TOP) b.x = b.x + b.w / 2, b.y = b.y + b.h / 2;
    if (l->yolo_point == YOLO_POINT_RIGHT_BOTTOM) b.x = b.x - b.w / 2, b.y = b.y - b.h / 2;
    return b;
}

/* probs[k] = objectness * class * (1 - mean of the four uncertainties): the last product in double.
 * Source: AlexeyAB gaussian_yolo_layer.c get_gaussian_yolo_detections, hank-ai's the same. */
void get_gaussian_yolo_detections(const layer *l, size_t b, const decoding *d, const detection_rows *rows) {
    const size_t stride = cells_of(l);
    size_t row = 0;
    for (size_t k = 0; k < stride * l->n; ++k) {
        const slot s = slot_at(l, k, SCAN_CELLS_OUTER);
        const float *t = planar_entries(l, b, s);
        const float object = t[8 * stride];
        if (!(object > d->thresh)) continue;
        float *uc = rows->uncertainty + 4 * row, *probs = rows->probs + row * l->classes;
        for (size_t i = 0; i < 4; ++i) uc[i] = t[(2 * i + 1) * stride];
        const float mean = (float)((double)(uc[0] + uc[1] + uc[2] + uc[3]) / 4.0);
        rows->boxes[row] = gaussian_yolo_box(l, s, t, d);
        rows->objectness[row] = object;
        set_origin(rows, row, s);
        for (size_t j = 0; j < l->classes; ++j) {
            const float prob = (float)((double)(object * t[(9 + j) * stride]) * (1.0 - (double)mean));
            probs[j] = prob > d->thresh ? prob : 0;
        }
        ++row;
    }
}

/* ---- [region]: every cell and anchor ---------------------------------------------------------------------------------------- */

static box region_box(const layer *l, slot s, float tx, float ty, float tw, float th) {
    const float *anchor = l->anchors + 2 * s.anchor;
    const precision p = l->layer_rule.arithmetic.box;
    box b = centre_in_cell(l, s.cell, tx, ty);
    b.w = scaled_anchor(tw, anchor[0], (float)l->w, p);
    b.h = scaled_anchor(th, anchor[1], (float)l->h, p);
    return b;
}

/* d->scratch becomes the nodes' probabilities; first (n, each stride behind the last) is node 0, and one entry more is copied
 * where `more` says so. */
static void fill_scratch(const layer *l, const float *first, size_t stride, size_t more, const decoding *d) {
    for (size_t i = 0; i < l->classes + more; ++i) d->scratch[i] = first[i * stride];
    hierarchy_predictions(d->scratch, l->softmax_tree);
}

/* probs (n_map): factor * probability of the node that the map names. */
static void fill_mapped(float *probs, const decoding *d, size_t offset, float factor) {
    for (size_t k = 0; k < d->n_map; ++k) {
        const float prob = factor * d->scratch[(size_t)d->map[k] + offset];
        probs[k] = prob > d->thresh ? prob : 0;
    }
}

/* Without a map the one class that the branches lead to gets the objectness itself. Without objectness the tree starts one entry
 * early, and a map does not. */
static void planar_tree_probs(const layer *l, const float *t, float factor, const decoding *d, float *probs) {
    const size_t stride = cells_of(l), background = l->background != 0;
    fill_scratch(l, t + (l->coords + !background) * stride, stride, background, d);
    if (d->map) {
        fill_mapped(probs, d, background, factor);
        return;
    }
    const size_t top = hierarchy_top_prediction(d->scratch, l->softmax_tree, d->hier);
    probs[top] = factor > d->thresh ? factor : 0;
}

/* Rows (n, h*w). Objectness up to thresh is 0, and so are the row's probabilities. With a background class the factor is 1.
 * Source: pjreddie region_layer.c get_region_detections. */
static void planar_region(const layer *l, size_t b, const decoding *d, const detection_rows *rows) {
    const size_t stride = cells_of(l), width = d->map ? d->n_map : l->classes;
    for (size_t row = 0; row < stride * l->n; ++row) {
        const slot s = slot_at(l, row, SCAN_ANCHORS_OUTER);
        const float *t = planar_entries(l, b, s);
        const float factor = l->background ? 1 : t[l->coords * stride];
        float *probs = rows->probs + row * width;
        rows->boxes[row] = region_box(l, s, t[0], t[stride], t[2 * stride], t[3 * stride]);
        rows->objectness[row] = factor > d->thresh ? factor : 0;
        set_origin(rows, row, s);
        memset(probs, 0, width * sizeof *probs);
        if (l->softmax_tree)
            planar_tree_probs(l, t, factor, d, probs);
        else if (rows->objectness[row] != 0)
            fill_probs(probs, t + (l->coords + 1) * stride, l->classes, stride, factor, d->thresh);
    }
}

/* Without a map the last node whose probability is over hier, the deepest of its branch, gets that probability. */
static void flattened_tree_probs(const layer *l, const float *classes, float factor, const decoding *d, float *probs) {
    fill_scratch(l, classes, 1, 0, d);
    if (d->map) {
        fill_mapped(probs, d, 0, factor);
        return;
    }
    size_t last = l->classes;
    while (last > 0 && !(d->scratch[last - 1] > d->hier)) --last;
    if (last > 0) probs[last - 1] = factor > d->thresh ? d->scratch[last - 1] : 0;
}

/* Rows (h*w, n), the entries of a row side by side; x and y are still without their logistic. Objectness is told as 1 whatever it
 * is; a background class and further coordinates are not known here: an entry is 5 + classes long.
 * Source: AlexeyAB region_layer.c get_region_boxes, network.c custom_get_region_detections. */
static void flattened_region(const layer *l, size_t b, const decoding *d, const detection_rows *rows) {
    const size_t width = d->map ? d->n_map : l->classes;
    for (size_t row = 0; row < cells_of(l) * l->n; ++row) {
        const slot s = slot_at(l, row, SCAN_CELLS_OUTER);
        const float *t = l->output + b * l->outputs + row * (5 + l->classes);
        const float factor = l->classfix == -1 && t[4] < .5 ? 0 : t[4];
        float xy[2] = {t[0], t[1]}, *probs = rows->probs + row * width;
        activate_array(xy, 2, ACTIVATION_LOGISTIC, &l->layer_rule.arithmetic, 0);
        rows->boxes[row] = region_box(l, s, xy[0], xy[1], t[2], t[3]);
        rows->objectness[row] = 1;
        set_origin(rows, row, s);
        memset(probs, 0, width * sizeof *probs);
        if (l->softmax_tree)
            flattened_tree_probs(l, t + 5, factor, d, probs);
        else
            fill_probs(probs, t + 5, l->classes, 1, factor, d->thresh);
    }
}

void get_region_detections(const layer *l, size_t b, const decoding *d, const detection_rows *rows) {
    (l->layer_rule.region == REGION_PLANAR ? planar_region : flattened_region)(l, b, d, rows);
}

/* ---- [detection]: every cell and box, classes of the cell ------------------------------------------------------------------- */

/* A side, squared in double where the section says sqrt, times the picture's. */
static float detection_side(const layer *l, float t, int size) {
    return (float)(pow((double)t, l->sqrt ? 2 : 1) * size);
}

/* An image is (side*side, classes), then objectness (side*side, n), then x y w h (side*side, n, 4). Objectness is told as it is.
 * Source: detection_layer.c get_detection_detections, pjreddie and AlexeyAB. */
void get_detection_detections(const layer *l, size_t b, const decoding *d, const detection_rows *rows) {
    const size_t cells = cells_of(l);
    const float *classes = l->output + b * l->outputs, *objects = classes + cells * l->classes, *boxes = objects + cells * l->n;
    for (size_t row = 0; row < cells * l->n; ++row) {
        const slot s = slot_at(l, row, SCAN_CELLS_OUTER);
        const float *t = boxes + 4 * row, side = (float)l->side;
        rows->boxes[row] = (box){
            .x = (t[0] + (float)(s.cell % l->side)) / side * (float)d->w,
            .y = (t[1] + (float)(s.cell / l->side)) / side * (float)d->h,
            .w = detection_side(l, t[2], d->w),
            .h = detection_side(l, t[3], d->h),
        };
        rows->objectness[row] = objects[row];
        set_origin(rows, row, s);
        fill_probs(rows->probs + row * l->classes, classes + s.cell * l->classes, l->classes, 1, objects[row], d->thresh);
    }
}
