/* The middle of an image (pjreddie/darknet src/crop_layer.c outside training). */
#include "../internal.h"
#include "../kernels/kernels.h"

static status forward_crop_layer(layer *l, const network_state *state) {
    crop_cpu(state->input, state->batch * l->c, l->h, l->w, l->out_h, l->out_w, l->alpha, l->beta, l->output);
    return STATUS_OK;
}

status make_crop_layer(layer **made, size_t c, size_t h, size_t w, size_t crop_h, size_t crop_w, int adjust) {
    *made = NULL;
    if (crop_h > h || crop_w > w) return fail(STATUS_SHAPE, "a crop of %zu x %zu is larger than %zu x %zu", crop_w, crop_h, w, h);
    layer *l = *made = make_layer((shape){c, h, w}, (shape){c, crop_h, crop_w});
    if (!l) return STATUS_SHAPE;
    l->alpha = adjust ? 2 : 1; /* also 1 * x + 0 is computed: it makes -0 a 0 */
    l->beta = adjust ? -1 : 0;
    l->forward = forward_crop_layer;
    return STATUS_OK;
}
