/* Detections: a part of darknetbn.h, which includes it where its types are known. */
#ifndef DARKNETBN_DETECTIONS_H
#define DARKNETBN_DETECTIONS_H

/* cdef begin */

typedef struct {
    int anchor, cell;
} detection_origin;

/* w, h: the network's input's, for [detection] the picture's. With a tree scratch (classes + 1) is overwritten, and map (n_map) may
 * name the nodes that the rows are to have as classes, instead of all. */
typedef struct {
    float thresh, hier;
    int w, h;
    const int *map;
    size_t n_map;
    float *scratch;
} decoding;
/* One row a detection; probs (classes or n_map) are 0 up to thresh, uncertainty (4) is [Gaussian_yolo]'s. All overwritten. */
typedef struct {
    box *boxes;
    float *objectness, *probs, *uncertainty;
    detection_origin *origins;
} detection_rows;
/* Of [yolo] and [Gaussian_yolo]: detections of image b whose objectness is over thresh. The others have all h*w*n, side*side*n. */
size_t yolo_num_detections(const layer *l, size_t b, float thresh);
/* Boxes relative to the network's input, those of [detection] in pixels of the picture; rows in the rule's order. */
void get_yolo_detections(const layer *l, size_t b, const decoding *d, const detection_rows *rows);
void get_gaussian_yolo_detections(const layer *l, size_t b, const decoding *d, const detection_rows *rows);
void get_region_detections(const layer *l, size_t b, const decoding *d, const detection_rows *rows);
void get_detection_detections(const layer *l, size_t b, const decoding *d, const detection_rows *rows);
/* Boxes relative to the network's input become relative to the picture (w, h), or its pixels, in place. */
void correct_yolo_boxes(box *boxes, size_t n, int w, int h, int netw, int neth, int letter, int relative, unbox unbox);

typedef enum { NMS_SORT, NMS_OBJ, NMS_GREEDYNMS, NMS_DIOUNMS, NMS_CORNERSNMS } nms;

/* Non-maximum suppression: what is suppressed gets probability 0 (NMS_OBJ: objectness 0 as well); order (n) takes the final order
 * of the rows. A row before another keeps that place where the two are equal. */
status do_nms(nms kind, const box *boxes, float *objectness, float *probs, size_t *order, size_t n, size_t classes, float thresh,
              float beta, iou iou, precision power);

/* cdef end */

#endif
