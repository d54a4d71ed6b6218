/* What the heads with a loss share: whether a truth can be read, the images one after another, and what is told of them. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../internal.h"
#include "../kernels/losses.h"

status set_loss(layer *l, const loss_options *o, const int *map, size_t n_map, const float *class_weights) {
    for (size_t i = 0; i < n_map; ++i)
        if (map[i] < 0 || (size_t)map[i] >= l->classes)
            return fail(STATUS_SHAPE, "class %zu of the map is %d, there are %zu", i, map[i], l->classes);
    int *own_map = n_map ? malloc(n_map * sizeof *map) : NULL;
    float *own_weights = class_weights ? make_array(l->classes) : NULL;
    if ((n_map && !own_map) || (class_weights && !own_weights)) {
        free(own_map);
        array_release(own_weights);
        return fail(STATUS_OUT_OF_MEMORY, "no memory for a loss");
    }
    if (own_map) memcpy(own_map, map, n_map * sizeof *map);
    if (own_weights) memcpy(own_weights, class_weights, l->classes * sizeof *class_weights);
    free(l->map);
    array_release(l->class_weights);
    l->loss = *o;
    l->map = own_map, l->n_map = n_map;
    l->class_weights = own_weights;
    return STATUS_OK;
}

int has_truth(const layer *l, const network_state *state) {
    return state->truth && l->loss.truths;
}

status backward_loss(layer *l, const network_state *state) {
    if (state->delta) axpy_cpu(state->batch * l->inputs, 1, l->delta, state->delta);
    return STATUS_OK;
}

/* ---- a truth ---------------------------------------------------------------------------------------------------------------- */

static int is_within(float x) {
    return x >= 0 && x <= 1; /* false for NaN */
}

static int is_side(float x) {
    return x > 0 && x <= FLT_MAX;
}

static status check_row(const layer *l, const float *row, size_t image, size_t t) {
    const int alone = tells_class_alone(l, row);
    const size_t classes = l->map && !alone ? l->n_map : l->classes;
    const float told = row[l->loss.class_at];
    if (!alone && !(is_within(row[0]) && is_within(row[1]) && is_side(row[2]) && is_side(row[3])))
        return fail(STATUS_SHAPE,
                    "box %zu of image %zu is at x %g, y %g with w %g, h %g; expected a middle from 0 to 1 and sides over 0", t,
                    image, (double)row[0], (double)row[1], (double)row[2], (double)row[3]);
    if (!(told >= 0 && told < (float)classes))
        return fail(STATUS_SHAPE, "box %zu of image %zu has class %g; expected 0 to %zu", t, image, (double)told, classes - 1);
    return STATUS_OK;
}

static status check_instances(const layer *l, const network_state *state) {
    const loss_options *o = &l->loss;
    for (size_t b = 0; b < state->batch; ++b) {
        const float *rows = state->truth + b * o->truths;
        for (size_t t = 0; t < o->boxes && !(rows[t * o->row] <= -1); ++t)
            if (!(rows[t * o->row] > -1 && rows[t * o->row] < (float)l->classes))
                return fail(STATUS_SHAPE, "instance %zu of image %zu has class %g; expected 0 to %zu, or -1 behind the last", t, b,
                            (double)rows[t * o->row], l->classes - 1);
    }
    return STATUS_OK;
}

static status check_truth(const layer *l, const network_state *state) {
    const loss_options *o = &l->loss;
    for (size_t b = 0; b < state->batch; ++b) {
        const float *rows = state->truth + b * o->truths;
        for (size_t t = 0; t < o->boxes && rows[t * o->row] != 0; ++t) {
            status s = check_row(l, rows + t * o->row, b, t);
            if (s != STATUS_OK) return s;
        }
    }
    return STATUS_OK;
}

/* ---- the images of a batch -------------------------------------------------------------------------------------------------- */

static void loss_of_image(const loss_image *m, head_kind kind) {
    switch (kind) {
        case LOSS_OF_YOLO:
        case LOSS_OF_GAUSSIAN_YOLO: yolo_loss(m); break;
        case LOSS_OF_PLANAR_REGION: planar_region_loss(m); break;
        case LOSS_OF_FLAT_REGION: flat_region_loss(m); break;
        case LOSS_OF_DETECTION: detection_loss(m); break;
        case LOSS_OF_ISEG: iseg_loss(m); break;
    }
}

static void add_sums(loss_sums *total, const loss_sums *s) {
    total->count += s->count, total->class_count += s->class_count;
    total->iou += s->iou, total->iou_loss += s->iou_loss, total->giou_loss += s->giou_loss;
    total->recall += s->recall, total->recall75 += s->recall75;
    total->class_score += s->class_score, total->any_class_score += s->any_class_score;
    total->objectness += s->objectness, total->any_objectness += s->any_objectness;
}

static loss_sums losses_of_batch(layer *l, const network_state *state, head_kind kind, float *delta, float *scratch) {
    const loss_rule *rule = &l->layer_rule.losses;
    const int alone = kind == LOSS_OF_YOLO && rule->score_sums == SCORE_SUMS_IMAGE;
    loss_sums total = {0};
    for (size_t b = 0; b < state->batch; ++b) {
        loss_sums own = {0};
        const loss_image m = {
            .l = l,
            .o = &l->loss,
            .rule = rule,
            .truth = state->truth + b * l->loss.truths,
            .output = l->output + b * l->outputs,
            .delta = delta + b * l->outputs,
            .delta_of_batch = delta,
            .scratch = scratch,
            .sums = alone ? &own : &total,
            .image = b,
            .seen = state->seen,
        };
        loss_of_image(&m, kind);
        if (alone) add_sums(&total, &own);
    }
    if (alone && !total.count) total.count = total.class_count = 1;
    return total;
}

/* ---- what is told ----------------------------------------------------------------------------------------------------------- */

static void take_means(layer *l, const loss_sums *s, size_t batch) {
    const size_t cells = l->side ? l->side * l->side : l->h * l->w;
    const float count = (float)s->count;
    l->statistics = (loss_statistics){
        .count = s->count,
        .iou = s->iou / count,
        .recall = s->recall / count,
        .recall75 = s->recall75 / count,
        .class_score = s->class_score / (float)(s->class_count ? s->class_count : s->count),
        .any_class_score = s->any_class_score / (float)(s->count * l->classes),
        .objectness = s->objectness / count,
        .any_objectness = s->any_objectness / (float)(cells * l->n * batch),
    };
}

/* The square of the root, which is a float. */
static double cost_of_sum(float sum) {
    const double root = (double)sqrtf(sum);
    return root * root;
}

/* What a [yolo] costs; with an overlap as its loss, that and not the square of its slopes. */
static void take_yolo_costs(layer *l, const loss_sums *s, size_t batch) {
    const loss_options *o = &l->loss;
    const float images = (float)batch, total = l->cost;
    const double squares = cost_of_sum(sum_of_squares_without(l, l->delta, batch, 0, l->coords));
    const float scores = (float)((double)o->obj_normalizer * squares);
    l->statistics.class_loss = scores / images;
    l->statistics.iou_loss = (total - scores) / images;
    if (o->iou_loss == IOU_LOSS_MSE || !o->details) return;
    const float overlaps = o->iou_loss == IOU_LOSS_GIOU ? s->giou_loss : s->iou_loss;
    l->cost = o->iou_normalizer * (overlaps / (float)s->count) + scores;
}

/* The program takes the last four entries of a box for its uncertainties, which are every second. */
static void take_gaussian_costs(layer *l, size_t batch) {
    const float images = (float)batch;
    const float scores = (float)cost_of_sum(sum_of_squares_without(l, l->delta, batch, 0, l->coords));
    const float certain = (float)cost_of_sum(sum_of_squares_without(l, l->delta, batch, l->coords / 2, l->coords / 2));
    l->statistics.class_loss = scores / images;
    l->statistics.iou_loss = (certain - scores) / images;
    l->statistics.uc_loss = (l->cost - certain) / images;
}

/* What a kind of head works with: deltas that lie flattened, means of instances; *made NULL: nothing. */
static status make_working_array(const layer *l, size_t batch, head_kind kind, float **made) {
    size_t n = 0;
    if (kind == LOSS_OF_FLAT_REGION) n = batch * l->outputs;
    if (kind == LOSS_OF_ISEG) n = l->loss.boxes * (l->out_c - l->classes + 1);
    *made = n ? make_array(n) : NULL;
    return n && !*made ? STATUS_OUT_OF_MEMORY : STATUS_OK;
}

status head_loss(layer *l, const network_state *state, head_kind kind) {
    float *working = NULL;
    if (!has_truth(l, state)) return STATUS_OK;
    status s = kind == LOSS_OF_ISEG ? check_instances(l, state) : check_truth(l, state);
    if (s == STATUS_OK) s = prepare_delta(l, state->batch, DELTA_START_CLEARED);
    if (s == STATUS_OK) s = make_working_array(l, state->batch, kind, &working);
    if (s != STATUS_OK) return s;
    const int flat = kind == LOSS_OF_FLAT_REGION;
    const loss_sums sums = losses_of_batch(l, state, kind, flat ? working : l->delta, working);
    if (flat) flatten_cpu(working, state->batch, l->h * l->w, l->outputs / (l->h * l->w), 0, l->delta);
    array_release(working);
    take_means(l, &sums, state->batch);
    l->cost = (float)cost_of_sum(sum_of_squares(l->delta, state->batch * l->outputs));
    l->statistics.total_loss = l->cost / (float)state->batch;
    if (kind == LOSS_OF_YOLO) take_yolo_costs(l, &sums, state->batch);
    if (kind == LOSS_OF_GAUSSIAN_YOLO) take_gaussian_costs(l, state->batch);
    return STATUS_OK;
}
