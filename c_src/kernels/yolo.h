/* The places that [yolo] and [Gaussian_yolo] teach. An anchor's entries are h*w apart: `coords` of its box, objectness, classes. */
#ifndef DARKNETBN_KERNELS_YOLO_H
#define DARKNETBN_KERNELS_YOLO_H

#include "losses.h"

typedef struct {
    size_t anchor, i, j;   /* among all anchors; the cell's column and row */
    float *output, *delta; /* entry 0 */
} yolo_place;

/* What lies behind the last cell of all anchors is the last cell of its own. */
yolo_place yolo_place_at(const loss_image *m, size_t n, size_t anchor, size_t i, size_t j);
/* Whether each number of a box has an uncertainty behind it. */
int is_gaussian(const layer *l);
int is_number(float x);
box yolo_box_of(const loss_image *m, const yolo_place *at);
/* Adds to the deltas of the box what draws it to the truth, and gives the box that was there. */
box teach_yolo_box(const loss_image *m, const yolo_place *at, box truth, float class_weight);

#endif
