/* A convolution of signs (xnor=1): weights become plus or minus the mean of their filter's magnitudes, inputs plus or minus 1.
 *
 * The first fork adds the products in float, with zeros for the padding. The later ones count equal bits, where the padding is a bit
 * as any other, minus 1, and multiply the count by the mean (AlexeyAB/darknet src/gemm.c gemm_nn_custom_bin_mean_transposed). A sum
 * of signs is exact in float up to 2^24 of them, so the count is taken by the same convolution. */
#include "../internal.h"
#include "../kernels/kernels.h"

typedef struct {
    float *input, *weights, *means;
} signs;

static status make_signs(const layer *l, const network_state *state, size_t pad, signs *made) {
    size_t floats, factors[] = {state->batch, l->c, l->h + 2 * pad, l->w + 2 * pad};
    if (!product(&floats, factors, 4)) return fail(STATUS_OUT_OF_MEMORY, "%zu images are too many", state->batch);
    made->input = make_array(floats);
    made->weights = make_array(l->nweights);
    made->means = make_array(l->n);
    if (!made->input || !made->weights || !made->means) return STATUS_OUT_OF_MEMORY;
    binarize_padded(state->input, state->batch * l->c, l->h, l->w, pad, made->input);
    binarize_weights(l->weights, l->n, l->nweights / l->n, made->weights, made->means);
    return STATUS_OK;
}

static void multiply_weights(const layer *l, const signs *s) {
    size_t size = l->nweights / l->n;
    for (size_t i = 0; i < l->nweights; ++i) s->weights[i] *= s->means[i / size];
}

status convolve_signs(const layer *l, const network_state *state, convolution_shape s, float *output, float *scratch,
                      size_t threads) {
    int counts = l->layer_rule.xnor == XNOR_COUNTS;
    size_t pad = counts ? s.pad_x : 0;
    signs made = {0};
    status done = make_signs(l, state, pad, &made);
    if (done == STATUS_OK) {
        s.h += 2 * pad, s.w += 2 * pad;
        s.pad_x -= pad, s.pad_y -= pad;
        s.direct = 0;
        if (!counts) multiply_weights(l, &made);
        convolve(&s, state->batch, 1, made.input, made.weights, output, scratch, threads);
        if (counts) scale_bias(output, made.means, (extent){state->batch, l->n, s.out_h * s.out_w});
    }
    array_release(made.input);
    array_release(made.weights);
    array_release(made.means);
    return done;
}
