/* Detections: boxes out of the heads' outputs, the way back to the picture, and non-maximum suppression. Floats are floats and
 * doubles doubles where the forks' sources have them so, since one rounding more changes which box is kept. */
#include "../internal.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* ---- decoding --------------------------------------------------------------------------------------------------------------- */

typedef struct {
    size_t anchor, cell;
} slot;

static size_t cells_of(const layer *l) {
    return l->h * l->w;
}

static slot slot_at(const layer *l, size_t k) {
    if (l->layer_rule.scan == SCAN_CELLS_OUTER) return (slot){.anchor = k % l->n, .cell = k / l->n};
    return (slot){.anchor = k / cells_of(l), .cell = k % cells_of(l)};
}

static detection_origin origin_of(slot s) {
    return (detection_origin){.anchor = (int)s.anchor, .cell = (int)s.cell};
}

/* Entry 0 of a slot in a planar output (batch, n, entries, h*w); entry e lies e*h*w behind it. */
static const float *planar_entries(const layer *l, size_t b, slot s, size_t entries) {
    return l->output + b * l->outputs + s.anchor * entries * cells_of(l) + s.cell;
}

/* exp(t) * anchor / size, of a box's width or height. */
static float scaled_anchor(float t, float anchor, float size, precision p) {
    if (p == PRECISION_DOUBLE) return (float)(exp((double)t) * anchor / size);
    return expf(t) * anchor / size;
}

/* x = (column + tx)/w, y = (row + ty)/h; t holds tx, ty, tw, th, each stride behind the last. Width and height stay 0.
 * All forks: get_yolo_box, get_region_box. */
static box centre_in_cell(const layer *l, size_t cell, float tx, float ty) {
    return (box){
        .x = ((float)(cell % l->w) + tx) / (float)l->w,
        .y = ((float)(cell / l->w) + ty) / (float)l->h,
    };
}

/* w = exp(tw)*anchor/netw, or with new_coords tw*tw*4*anchor/netw, a float after each step. Source: AlexeyAB yolo_layer.c
 * get_yolo_box; pjreddie's is the first form. */
static box yolo_box(const layer *l, slot s, const float *t, int netw, int neth) {
    const size_t stride = cells_of(l);
    const float *anchor = l->anchors + 2 * (size_t)l->mask[s.anchor];
    const precision p = l->layer_rule.arithmetic.box;
    const float tw = t[2 * stride], th = t[3 * stride];
    box b = centre_in_cell(l, s.cell, t[0], t[stride]);
    b.w = l->new_coords ? tw * tw * 4 * anchor[0] / (float)netw : scaled_anchor(tw, anchor[0], (float)netw, p);
    b.h = l->new_coords ? th * th * 4 * anchor[1] / (float)neth : scaled_anchor(th, anchor[1], (float)neth, p);
    return b;
}

/* probs[k] = factor*classes[k*stride] where that is over thresh, else 0; so is a NaN. */
static void fill_probs(float *probs, const float *classes, size_t n, size_t stride, float factor, float thresh) {
    for (size_t k = 0; k < n; ++k) {
        const float prob = factor * classes[k * stride];
        probs[k] = prob > thresh ? prob : 0;
    }
}

size_t yolo_num_detections(const layer *l, size_t b, float thresh) {
    size_t count = 0;
    for (size_t k = 0; k < cells_of(l) * l->n; ++k) {
        const float *entries = planar_entries(l, b, slot_at(l, k), 4 + l->classes + 1);
        count += entries[4 * cells_of(l)] > thresh; /* false for NaN */
    }
    return count;
}

/* boxes, objectness, origins (count), probs (count, classes): overwritten; count is yolo_num_detections's.
 * Source: AlexeyAB yolo_layer.c get_yolo_detections; order also hank-ai yolo_layer.cpp yolo_num_detections_v3. */
void get_yolo_detections(const layer *l, size_t b, float thresh, int netw, int neth, box *boxes, float *objectness, float *probs,
                         detection_origin *origins) {
    const size_t stride = cells_of(l);
    size_t count = 0;
    for (size_t k = 0; k < stride * l->n; ++k) {
        const slot s = slot_at(l, k);
        const float *entries = planar_entries(l, b, s, 4 + l->classes + 1);
        const float object = entries[4 * stride];
        if (!(object > thresh)) continue;
        boxes[count] = yolo_box(l, s, entries, netw, neth);
        objectness[count] = object;
        origins[count] = origin_of(s);
        fill_probs(probs + count * l->classes, entries + 5 * stride, l->classes, stride, object, thresh);
        ++count;
    }
}

static box region_box(const layer *l, slot s, float tx, float ty, float tw, float th) {
    const float *anchor = l->anchors + 2 * s.anchor;
    const precision p = l->layer_rule.arithmetic.box;
    box b = centre_in_cell(l, s.cell, tx, ty);
    b.w = scaled_anchor(tw, anchor[0], (float)l->w, p);
    b.h = scaled_anchor(th, anchor[1], (float)l->h, p);
    return b;
}

/* Rows (n, h*w). Objectness up to thresh is 0, and so are the row's probabilities. With a background class the factor is 1.
 * Source: pjreddie region_layer.c get_region_detections. */
static void planar_region(const layer *l, size_t b, float thresh, box *boxes, float *objectness, float *probs,
                          detection_origin *origins) {
    const size_t stride = cells_of(l), entries = l->coords + l->classes + 1;
    for (size_t row = 0; row < stride * l->n; ++row) {
        const slot s = {.anchor = row / stride, .cell = row % stride};
        const float *t = planar_entries(l, b, s, entries);
        const float factor = l->background ? 1 : t[l->coords * stride];
        boxes[row] = region_box(l, s, t[0], t[stride], t[2 * stride], t[3 * stride]);
        objectness[row] = factor > thresh ? factor : 0;
        origins[row] = origin_of(s);
        memset(probs + row * l->classes, 0, l->classes * sizeof *probs);
        if (objectness[row] == 0) continue;
        fill_probs(probs + row * l->classes, t + (l->coords + 1) * stride, l->classes, stride, factor, thresh);
    }
}

/* Rows (h*w, n), the entries of a row side by side; x and y are still without their logistic. Objectness is told as 1 whatever it
 * is; a background class changes nothing.
 * Source: AlexeyAB region_layer.c get_region_boxes, network.c custom_get_region_detections. */
static void flattened_region(const layer *l, size_t b, float thresh, box *boxes, float *objectness, float *probs,
                             detection_origin *origins) {
    const size_t entries = l->coords + l->classes + 1;
    for (size_t row = 0; row < cells_of(l) * l->n; ++row) {
        const slot s = {.anchor = row % l->n, .cell = row / l->n};
        const float *t = l->output + b * l->outputs + row * entries;
        float xy[2] = {t[0], t[1]};
        activate_array(xy, 2, ACTIVATION_LOGISTIC, &l->layer_rule.arithmetic, 0);
        boxes[row] = region_box(l, s, xy[0], xy[1], t[2], t[3]);
        objectness[row] = 1;
        origins[row] = origin_of(s);
        fill_probs(probs + row * l->classes, t + l->coords + 1, l->classes, 1, t[l->coords], thresh);
    }
}

/* boxes, objectness, origins (n*h*w), probs (n*h*w, classes): overwritten. */
void get_region_detections(const layer *l, size_t b, float thresh, box *boxes, float *objectness, float *probs,
                           detection_origin *origins) {
    const int planar = l->layer_rule.region == REGION_PLANAR;
    (planar ? planar_region : flattened_region)(l, b, thresh, boxes, objectness, probs, origins);
}

/* ---- back to the picture ---------------------------------------------------------------------------------------------------- */

/* With a margin of (net - new)/2 on both sides, x = (x - margin/net) / (new/net) and w = w / (new/net), where the quotient in w
 * is a float net/new (UNBOX_DIVIDE_RATIO) or the inverse of new/net (UNBOX_MULTIPLY_INVERSE); the sum is a double in both. The
 * picture's and the network's sides are over 0.
 * Source: correct_yolo_boxes of yolo_layer.c, pjreddie and AlexeyAB. */
void correct_yolo_boxes(box *boxes, size_t n, int w, int h, int netw, int neth, int letter, int relative, unbox unbox) {
    int new_w = netw, new_h = neth;
    if (letter) {
        if ((float)netw / (float)w < (float)neth / (float)h)
            new_h = (int)((long long)h * netw / w);
        else
            new_w = (int)((long long)w * neth / h);
    }
    const double margin_x = (netw - new_w) / 2. / netw, margin_y = (neth - new_h) / 2. / neth;
    const float ratio_x = (float)new_w / (float)netw, ratio_y = (float)new_h / (float)neth;
    const int divide = unbox == UNBOX_DIVIDE_RATIO;
    const float factor_x = divide ? (float)netw / (float)new_w : 1 / ratio_x;
    const float factor_y = divide ? (float)neth / (float)new_h : 1 / ratio_y;
    for (size_t i = 0; i < n; ++i) {
        box *b = &boxes[i];
        b->x = (float)((b->x - margin_x) / ratio_x);
        b->y = (float)((b->y - margin_y) / ratio_y);
        b->w *= factor_x;
        b->h *= factor_y;
        if (relative) continue;
        b->x *= (float)w;
        b->w *= (float)w;
        b->y *= (float)h;
        b->h *= (float)h;
    }
}

/* ---- non-maximum suppression ------------------------------------------------------------------------------------------------ */

/* Length that two sides share, under 0 where they are apart. */
static float overlap(float x1, float w1, float x2, float w2) {
    const float l1 = x1 - w1 / 2, l2 = x2 - w2 / 2;
    const float r1 = x1 + w1 / 2, r2 = x2 + w2 / 2;
    const float left = l1 > l2 ? l1 : l2, right = r1 < r2 ? r1 : r2;
    return right - left;
}

/* i/u, i the area of the intersection, u of the union. Without area it is NaN (over no threshold) or 0, as the rule says.
 * Source: box.c box_iou, pjreddie and AlexeyAB. */
static float box_iou(box a, box b, iou rule) {
    const float w = overlap(a.x, a.w, b.x, b.w), h = overlap(a.y, a.h, b.y, b.h);
    const float i = w < 0 || h < 0 ? 0 : w * h;
    const float u = a.w * a.h + b.w * b.h - i;
    if (rule == IOU_ZERO_GUARD && (i == 0 || u == 0)) return 0;
    return i / u;
}

/* iou - (d/c)^exponent, d the squared distance of the centres, c the squared diagonal of the box around both; iou where c is 0.
 * Source: AlexeyAB box.c box_diou (exponent .6), box_diounms; the power in double. */
static float box_diou(box a, box b, double exponent, iou rule) {
    const float i = box_iou(a, b, rule);
    const float w = fmaxf(a.x + a.w / 2, b.x + b.w / 2) - fminf(a.x - a.w / 2, b.x - b.w / 2);
    const float h = fmaxf(a.y + a.h / 2, b.y + b.h / 2) - fminf(a.y - a.h / 2, b.y - b.h / 2);
    const float c = w * w + h * h;
    if (c == 0) return i;
    const float d = (a.x - b.x) * (a.x - b.x) + (a.y - b.y) * (a.y - b.y);
    return i - (float)pow((double)(d / c), exponent);
}

static float overlap_measure(nms kind, box a, box b, float beta, iou rule) {
    if (kind == NMS_GREEDYNMS) return box_diou(a, b, .6, rule);
    if (kind == NMS_DIOUNMS) return box_diou(a, b, (double)beta, rule);
    return box_iou(a, b, rule);
}

/* Sorts order (n, in place) by descending score[row*stride], equal ones (and NaN, equal to all) as they were; scratch (n). Halves
 * are cut and merged as glibc's qsort does it before 2.37, so that even an order with NaN in it is the recorded one. */
static void sort_rows(size_t *order, size_t n, const float *score, size_t stride, size_t *scratch) {
    if (n < 2) return;
    const size_t middle = n / 2;
    sort_rows(order, middle, score, stride, scratch);
    sort_rows(order + middle, n - middle, score, stride, scratch);
    size_t left = 0, right = middle, out = 0;
    while (left < middle && right < n) {
        const int take_right = score[order[right] * stride] > score[order[left] * stride];
        scratch[out++] = take_right ? order[right++] : order[left++];
    }
    memcpy(scratch + out, order + left, (middle - left) * sizeof *order);
    memcpy(order, scratch, (out + middle - left) * sizeof *order);
}

/* Rows with objectness 0 change places with the last ones; gives the number of the others. */
static size_t move_empty_behind(size_t *order, const float *objectness, size_t n) {
    for (size_t i = 0; i < n;) {
        const size_t row = order[i];
        if (objectness[row] != 0) {
            ++i;
        } else {
            order[i] = order[--n];
            order[n] = row;
        }
    }
    return n;
}

/* Source: box.c do_nms_obj, all forks. */
static void suppress_objects(const box *boxes, float *objectness, float *probs, const size_t *order, size_t n, size_t classes,
                             float thresh, iou rule) {
    for (size_t i = 0; i < n; ++i) {
        if (objectness[order[i]] == 0) continue;
        for (size_t j = i + 1; j < n; ++j) {
            const size_t row = order[j];
            if (objectness[row] == 0 || !(box_iou(boxes[order[i]], boxes[row], rule) > thresh)) continue;
            objectness[row] = 0;
            memset(probs + row * classes, 0, classes * sizeof *probs);
        }
    }
}

/* prob is probs + k: one class. Source: box.c do_nms_sort (all forks), diounms_sort (AlexeyAB). */
static void suppress_class(nms kind, const box *boxes, float *prob, const size_t *order, size_t n, size_t classes, float thresh,
                           float beta, iou rule) {
    for (size_t i = 0; i < n; ++i) {
        if (prob[order[i] * classes] == 0) continue;
        for (size_t j = i + 1; j < n; ++j) {
            float *other = &prob[order[j] * classes];
            /* what is 0 stays 0, but not a NaN */
            if (*other != 0 && overlap_measure(kind, boxes[order[i]], boxes[order[j]], beta, rule) > thresh) *other = 0;
        }
    }
}

/* boxes (n); objectness (n), probs (n, classes): in place; order (n): overwritten. Each class finds the rows in the order that
 * the class before left. */
status do_nms(nms kind, const box *boxes, float *objectness, float *probs, size_t *order, size_t n, size_t classes, float thresh,
              float beta, iou iou) {
    for (size_t i = 0; i < n; ++i) order[i] = i;
    const size_t total = move_empty_behind(order, objectness, n);
    if (total == 0) return STATUS_OK;
    size_t *scratch = total > SIZE_MAX / sizeof *scratch ? NULL : malloc(total * sizeof *scratch);
    if (!scratch) return fail(STATUS_OUT_OF_MEMORY, "no memory for sorting %zu detections", total);
    if (kind == NMS_OBJ) {
        sort_rows(order, total, objectness, 1, scratch);
        suppress_objects(boxes, objectness, probs, order, total, classes, thresh, iou);
    } else {
        for (size_t k = 0; k < classes; ++k) {
            sort_rows(order, total, probs + k, classes, scratch);
            suppress_class(kind, boxes, probs + k, order, total, classes, thresh, beta, iou);
        }
    }
    free(scratch);
    return STATUS_OK;
}
