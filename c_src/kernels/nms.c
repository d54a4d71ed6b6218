/* Non-maximum suppression. Floats are floats and doubles doubles where the forks' sources have them so. */
#include "../internal.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Length that two sides share, under 0 where they are apart. */
static float overlap(float x1, float w1, float x2, float w2) {
    const float l1 = x1 - w1 / 2, l2 = x2 - w2 / 2;
    const float r1 = x1 + w1 / 2, r2 = x2 + w2 / 2;
    const float left = l1 > l2 ? l1 : l2, right = r1 < r2 ? r1 : r2;
    return right - left;
}

/* Source: box.c box_iou, pjreddie and AlexeyAB. */
float box_iou(box a, box b, iou rule) {
    const float w = overlap(a.x, a.w, b.x, b.w), h = overlap(a.y, a.h, b.y, b.h);
    const float i = w < 0 || h < 0 ? 0 : w * h;
    const float u = a.w * a.h + b.w * b.h - i;
    if (rule == IOU_ZERO_GUARD && (i == 0 || u == 0)) return 0;
    return i / u;
}

/* What two boxes are measured by; beta is the exponent of NMS_DIOUNMS, taken in the type of power. */
typedef struct {
    nms kind;
    iou iou;
    float beta;
    precision power;
} measure;

/* (d/c)^exponent: .6 in double, or beta in the type that the rule says. */
static float distance_term(float quotient, const measure *m) {
    if (m->kind == NMS_GREEDYNMS) return (float)pow((double)quotient, .6);
    if (m->power == PRECISION_FLOAT) return powf(quotient, m->beta);
    return (float)pow((double)quotient, (double)m->beta);
}

/* iou - (d/c)^exponent, d the squared distance of the centres, c the squared diagonal of the box around both; iou where c is 0.
 * Source: AlexeyAB box.c box_diou, box_diounms; hank-ai box.cpp, where the power of the second is a float's. */
static float distance_iou(box a, box b, const measure *m) {
    const float i = box_iou(a, b, m->iou);
    const float w = fmaxf(a.x + a.w / 2, b.x + b.w / 2) - fminf(a.x - a.w / 2, b.x - b.w / 2);
    const float h = fmaxf(a.y + a.h / 2, b.y + b.h / 2) - fminf(a.y - a.h / 2, b.y - b.h / 2);
    const float c = w * w + h * h;
    if (c == 0) return i;
    const float d = (a.x - b.x) * (a.x - b.x) + (a.y - b.y) * (a.y - b.y);
    return i - distance_term(d / c, m);
}

float box_diou(box a, box b, iou rule) {
    const measure m = {.kind = NMS_GREEDYNMS, .iou = rule};
    return distance_iou(a, b, &m);
}

static float overlap_measure(box a, box b, const measure *m) {
    return m->kind == NMS_GREEDYNMS || m->kind == NMS_DIOUNMS ? distance_iou(a, b, m) : box_iou(a, b, m->iou);
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
static void suppress_class(const measure *m, const box *boxes, float *prob, const size_t *order, size_t n, size_t classes,
                           float thresh) {
    for (size_t i = 0; i < n; ++i) {
        if (prob[order[i] * classes] == 0) continue;
        for (size_t j = i + 1; j < n; ++j) {
            float *other = &prob[order[j] * classes];
            /* what is 0 stays 0, but not a NaN */
            if (*other != 0 && overlap_measure(boxes[order[i]], boxes[order[j]], m) > thresh) *other = 0;
        }
    }
}

/* boxes (n); objectness (n), probs (n, classes): in place; order (n): overwritten. Each class finds the rows in the order that
 * the class before left. */
status do_nms(nms kind, const box *boxes, float *objectness, float *probs, size_t *order, size_t n, size_t classes, float thresh,
              float beta, iou iou, precision power) {
    const measure m = {kind, iou, beta, power};
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
            suppress_class(&m, boxes, probs + k, order, total, classes, thresh);
        }
    }
    free(scratch);
    return STATUS_OK;
}
