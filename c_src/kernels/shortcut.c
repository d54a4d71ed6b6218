/* Sums of layers (AlexeyAB/darknet src/blas.c shortcut_multilayer_cpu; pjreddie/darknet src/blas.c shortcut_cpu). */
#include "../internal.h"
#include "kernels.h"
#include "shortcut_weights.h"

float shortcut_weight(const shortcut_sum *s, size_t i, size_t o) {
    return normalized_weight(s, i, o, chosen_elementary());
}

/* With S = FIRST_ADDEND + the sum of f(w), of which w_i is normalised to f(w_i) / S: gradient_j = f'(w_j) / S * (g_j - sum over i of
 * f(w_i) / S * g_i). A softmax takes its largest weight from each before exp, so this one moves FIRST_ADDEND against the sum, too. */
void normalized_weight_gradients(const shortcut_sum *s, const float *weight_gradients, float *updates) {
    size_t groups = s->outputs / s->weights_step;
    int relu = s->normalization == NORMALIZATION_RELU;
    const elementary *m = chosen_elementary();
    for (size_t g = 0; g < groups; ++g) {
        double sum = (double)FIRST_ADDEND, common = 0;
        float largest = -FLT_MAX;
        size_t leader = 0;
        for (size_t i = 0; i <= s->n; ++i)
            if (s->weights[i * groups + g] > largest) largest = s->weights[groups * (leader = i) + g];
        for (size_t i = 0; i <= s->n; ++i) {
            float w = s->weights[i * groups + g], value = relu ? positive(w) : m->expf(w - largest);
            sum += (double)value;
            common += (double)value * weight_gradients[i * groups + g];
        }
        for (size_t i = 0; i <= s->n; ++i) {
            float w = s->weights[i * groups + g];
            double slope = relu ? w > 0 : (double)m->expf(w - largest);
            double gradient = slope / sum * (weight_gradients[i * groups + g] - common / sum);
            if (!relu && i == leader) gradient -= (double)FIRST_ADDEND * common / (sum * sum);
            updates[i * groups + g] += (float)gradient;
        }
    }
}

void shortcut_multilayer_cpu(const float *input, size_t batch, const shortcut_sum *s, float *output) {
    for (size_t i = 0; i <= s->n; ++i) {
        const float *from = i ? s->inputs[i - 1] : input;
        size_t floats = s->outputs;
        if (i) floats = s->sources[i - 1].c * s->sources[i - 1].h * s->sources[i - 1].w;
        size_t common = floats < s->outputs ? floats : s->outputs;
        for (size_t o = 0; o < common;) {
            size_t stop = s->weights ? o + s->weights_step - o % s->weights_step : common;
            float w = s->weights ? shortcut_weight(s, i, o) : 1;
            if (stop > common) stop = common;
            for (size_t b = 0; b < batch; ++b) {
                const float *x = from + b * floats;
                float *out = output + b * s->outputs;
                for (size_t k = o; k < stop; ++k) out[k] = i ? out[k] + x[k] * w : x[k] * w;
            }
            o = stop;
        }
    }
}

static size_t ratio(size_t large, size_t small) {
    return large / small ? large / small : 1;
}

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

void shortcut_cpu(const float *source, shape from, size_t batch, shape to, float alpha, float beta, float *output) {
    size_t stride = ratio(from.w, to.w), sample = ratio(to.w, from.w);
    size_t c = smaller(from.c, to.c), h = smaller(from.h, to.h), w = smaller(from.w, to.w);
    for (size_t b = 0; b < batch; ++b) {
        for (size_t k = 0; k < c; ++k) {
            for (size_t row = 0; row < h; ++row) {
                float *out = output + to.w * (row * sample + to.h * (k + to.c * b));
                const float *add = source + from.w * (row * stride + from.h * (k + from.c * b));
                for (size_t x = 0; x < w; ++x) out[x * sample] = alpha * out[x * sample] + beta * add[x * stride];
            }
        }
    }
}
