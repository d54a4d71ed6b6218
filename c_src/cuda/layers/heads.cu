/* The outputs of heads and [softmax]; see layers/yolo_layer.c, region_layer.c, detection_layer.c and softmax_layer.c. */
#include "../../kernels/curves.h"
#include "../each.cuh"
#include "layers.h"

namespace {

/* What a value of an entry becomes */
enum change { KEPT = 0, LOGISTIC = 1, SPREAD = 2 };

struct head {
    size_t entries, cells, coords;
    precision p; /* of the logistic */
    float scale, offset;
    const float *input;
    float *output;
    __device__ float changed(float x, int how) const {
        const elementary own = {};
        if (how & LOGISTIC) x = logistic(x, p, &own);
        return how & SPREAD ? x * scale + offset : x;
    }
};

struct yolo_value : head {
    bool plain; /* new_coords */
    __device__ void operator()(size_t i) const {
        size_t entry = i / cells % entries;
        int how = entry < 2 ? LOGISTIC | SPREAD : entry < coords ? KEPT : LOGISTIC;
        output[i] = changed(input[i], plain ? how & SPREAD : how);
    }
};

/* x, y and all uncertainties, which are the odd ones of the first eight, through the logistic */
struct gaussian_yolo_value : head {
    __device__ void operator()(size_t i) const {
        size_t entry = i / cells % entries;
        int how = entry == 4 || entry == 6 ? KEPT : LOGISTIC;
        output[i] = changed(input[i], entry == 0 || entry == 2 ? how | SPREAD : how);
    }
};

struct region_value : head {
    bool background, class_logistic;
    __device__ void operator()(size_t i) const {
        size_t entry = i / cells % entries;
        bool chosen = entry < 2 || (entry == coords && !background) || (entry > coords && class_logistic);
        output[i] = changed(input[i], chosen ? LOGISTIC : KEPT);
    }
};

/* (entries of all anchors, cell) to (cell, anchor, entry), with the logistic of entry 4; one thread for each value of the first */
struct flat_region_value : head {
    size_t planes;
    __device__ void operator()(size_t i) const {
        size_t plane = i / cells % planes, image = i / cells / planes;
        output[(image * cells + i % cells) * planes + plane] = changed(input[i], plane % entries == 4 ? LOGISTIC : KEPT);
    }
};

/* Each of several softmaxes over n values, `stride` apart; those within an image begin `step` apart, its own last one `image` behind
 * the image before. output may be input. */
struct softmax_of_values {
    size_t n, stride, within, step, image;
    float temperature;
    precision p;
    const float *input;
    float *output;
    __device__ void operator()(size_t i) const {
        const elementary own = {};
        size_t at = i / within * image + i % within * step;
        share_powers(input + at, n, temperature, stride, p, &own, output + at);
    }
};

/* The same of each group of a tree's nodes in turn */
cudaError_t share(size_t count, softmax_of_values f, const tree *t, void *stream) {
    if (!t) return each(count, f, stream);
    cudaError_t error = cudaSuccess;
    for (size_t g = 0; g < t->groups && error == cudaSuccess; ++g) {
        softmax_of_values of_group = f;
        of_group.n = t->group_size[g];
        of_group.input += t->group_offset[g] * f.stride, of_group.output += t->group_offset[g] * f.stride;
        error = each(count, of_group, stream);
    }
    return error;
}

head head_of(const layer *l, const gpu_arrays *a) {
    precision p = precision_of_activation(ACTIVATION_LOGISTIC, &l->layer_rule.arithmetic, 0);
    float offset = (float)(-0.5 * (double)(l->scale_x_y - 1));
    return {l->coords + 1 + l->classes, l->h * l->w, l->coords, p, l->scale_x_y, offset, a->input, a->output};
}

cudaError_t activate_flat(const layer *l, const gpu_arrays *a) {
    head h = head_of(l, a);
    size_t slots = a->batch * l->n * h.cells;
    cudaError_t error = each(slots * h.entries, flat_region_value{h, h.entries * l->n}, a->stream);
    if (error != cudaSuccess || !(l->softmax || l->softmax_tree)) return error;
    float *classes = a->output + 5;
    softmax_of_values f = {l->classes, 1, 1, 0, h.entries, 1, l->layer_rule.arithmetic.softmax, classes, classes};
    return share(slots, f, l->softmax_tree, a->stream);
}

cudaError_t activate_planes(const layer *l, const gpu_arrays *a) {
    head h = head_of(l, a);
    size_t slots = a->batch * l->n * h.cells, more = l->background && !l->softmax_tree;
    bool shared = l->softmax || l->softmax_tree;
    cudaError_t error = each(slots * h.entries, region_value{h, l->background != 0, !shared}, a->stream);
    if (error != cudaSuccess || !shared) return error;
    size_t first = (l->coords + 1 - more) * h.cells;
    softmax_of_values f = {
        l->classes + more, h.cells,          h.cells, 1, h.entries * h.cells, 1, l->layer_rule.arithmetic.softmax,
        a->input + first,  a->output + first};
    return share(slots, f, l->softmax_tree, a->stream);
}

} // namespace

gpu_status forward_yolo_layer_gpu(const layer *l, const gpu_arrays *a) {
    gpu_status status = check_layer(l, a, "[yolo]");
    if (status != GPU_OK) return status;
    return gpu_check(each(a->batch * l->outputs, yolo_value{head_of(l, a), l->new_coords != 0}, a->stream), "[yolo]");
}

gpu_status forward_gaussian_yolo_layer_gpu(const layer *l, const gpu_arrays *a) {
    gpu_status status = check_layer(l, a, "[Gaussian_yolo]");
    if (status != GPU_OK) return status;
    return gpu_check(each(a->batch * l->outputs, gaussian_yolo_value{head_of(l, a)}, a->stream), "[Gaussian_yolo]");
}

gpu_status forward_region_layer_gpu(const layer *l, const gpu_arrays *a) {
    gpu_status status = check_layer(l, a, "[region]");
    if (status != GPU_OK) return status;
    return gpu_check(l->layer_rule.region == REGION_FLATTENED ? activate_flat(l, a) : activate_planes(l, a), "[region]");
}

gpu_status forward_detection_layer_gpu(const layer *l, const gpu_arrays *a) {
    gpu_status status = check_layer(l, a, "[detection]");
    if (status != GPU_OK) return status;
    cudaError_t error = copy_input(l, a);
    if (error != cudaSuccess || !l->softmax) return gpu_check(error, "[detection]");
    size_t cells = l->side * l->side;
    softmax_of_values f = {l->classes, 1, cells, l->classes, l->outputs, 1, l->layer_rule.arithmetic.softmax, a->output, a->output};
    return gpu_check(each(a->batch * cells, f, a->stream), "[detection]");
}

gpu_status forward_softmax_layer_gpu(const layer *l, const gpu_arrays *a) {
    gpu_status status = check_layer(l, a, "[softmax]");
    if (status != GPU_OK) return status;
    size_t groups = l->softmax_tree ? 1 : l->groups, n = l->inputs / groups;
    softmax_of_values f = {n, 1, 1, 0, n, l->temperature, l->layer_rule.arithmetic.softmax, a->input, a->output};
    return gpu_check(share(a->batch * groups, f, l->softmax_tree, a->stream), "[softmax]");
}
