/* Makes layers from mutated options and runs them; see README.md here. The sanitizers are the judge: no option, however wrong, may
 * read or write beyond an array. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../../c_src/darknetbn.h"

enum { MOST_FLOATS = 1 << 13, LIMIT = 1 << 22 };

typedef struct {
    const uint8_t *data;
    size_t left;
} reader;

static uint8_t byte(reader *r) {
    if (!r->left) return 0;
    --r->left;
    return *r->data++;
}

/* Mostly small, sometimes at an edge. */
static size_t number(reader *r) {
    static const size_t edges[] = {0,     SIZE_MAX, SIZE_MAX / 2 + 1, (size_t)1 << 31, ((size_t)1 << 31) - 1, (size_t)1 << 32,
                                   65536, 1000};
    uint8_t b = byte(r);
    return b >= 0xF8 ? edges[b & 7] : b % 24;
}

static float real(reader *r) {
    uint8_t bytes[4] = {byte(r), byte(r), byte(r), byte(r)};
    float value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static shape a_shape(reader *r) {
    shape s;
    s.c = number(r), s.h = number(r), s.w = number(r);
    return s;
}

static layer_rule a_layer_rule(reader *r) {
    layer_rule rule;
    memset(&rule, 0, sizeof rule);
    rule.direct_1x1 = byte(r) & 1;
    rule.region = byte(r) & 1;
    rule.scan = byte(r) & 1;
    rule.input_delta = byte(r) % 3;
    rule.copied_delta = byte(r) & 1, rule.gradient = byte(r) & 1;
    rule.recurrent.step_statistics = rule.recurrent.rnn_reading = rule.recurrent.rnn_passing = rule.scan;
    rule.recurrent.lstm_before = rule.recurrent.lstm_after = rule.recurrent.conv_lstm_cell = rule.scan;
    rule.recurrent.gru_backward = rule.recurrent.conv_lstm_passes_state = rule.recurrent.history_passes_all = rule.region;
    return rule;
}

static batchnorm_rule a_batchnorm_rule(reader *r) {
    batchnorm_rule rule;
    memset(&rule, 0, sizeof rule);
    rule.forward.value = real(r);
    rule.forward.side = byte(r) & 1;
    rule.normalize_variance = byte(r) & 1;
    rule.keep_variance = byte(r) & 1;
    rule.rolling_keep = real(r), rule.rolling_add = real(r);
    return rule;
}

static status make_head(layer **l, reader *r, shape in, const layer_rule *rule, int kind) {
    float anchors[64];
    int mask[32];
    head_options o;
    memset(&o, 0, sizeof o);
    o.c = in.c, o.h = in.h, o.w = in.w;
    o.n = byte(r) % 32, o.total = byte(r) % 32, o.classes = number(r), o.coords = number(r), o.side = number(r);
    o.softmax = byte(r) & 1, o.background = byte(r) & 1, o.new_coords = byte(r) & 1, o.scale_x_y = real(r);
    for (size_t i = 0; i < 64; ++i) anchors[i] = real(r);
    for (size_t i = 0; i < 32; ++i) mask[i] = (int8_t)byte(r);
    switch (kind) {
        case 0: return make_yolo_layer(l, &o, mask, anchors, rule);
        case 1: return make_gaussian_yolo_layer(l, &o, mask, anchors, rule);
        case 2: return make_detection_layer(l, &o, rule);
        case 3: return make_iseg_layer(l, in.c, in.h, in.w, o.classes, o.coords, rule);
        default: return make_region_layer(l, &o, anchors, rule);
    }
}

static convolutional_options a_convolution(reader *r, shape in) {
    convolutional_options o;
    memset(&o, 0, sizeof o);
    o.c = in.c, o.h = in.h, o.w = in.w;
    o.n = number(r), o.groups = number(r), o.size = number(r), o.stride_x = number(r), o.stride_y = number(r);
    o.pad = number(r), o.dilation = number(r), o.batch_normalize = byte(r) & 1, o.activation = byte(r) % 4;
    o.antialiasing = byte(r) % 3;
    return o;
}

static status make_recurrent(layer **l, reader *r, shape in, const batchnorm_rule *bn, const layer_rule *rule) {
    size_t inputs = in.c * in.h * in.w, hidden = number(r), outputs = number(r);
    int normalize = byte(r) & 1, flag = byte(r) & 1;
    rnn_options o = {inputs, hidden, outputs, byte(r) % 4, byte(r) % 4, normalize, flag};
    convolutional_options convolution = a_convolution(r, in);
    switch (byte(r) % 6) {
        case 0: return make_rnn_layer(l, &o, bn, rule);
        case 1: return make_crnn_layer(l, &convolution, hidden, flag, bn, rule);
        case 2: return make_gru_layer(l, inputs, outputs, o.activation, normalize, bn, rule);
        case 3: return make_lstm_layer(l, inputs, outputs, normalize, bn, rule);
        case 4: return make_conv_lstm_layer(l, &convolution, flag, real(r), bn, rule);
        default: return make_history_layer(l, in.c, in.h, in.w, hidden, rule);
    }
}

static status make_sum(layer **l, reader *r, shape in, const shape *sources, size_t n, const layer_rule *rule) {
    shortcut_options o;
    memset(&o, 0, sizeof o);
    o.c = in.c, o.h = in.h, o.w = in.w;
    o.alpha = real(r), o.beta = real(r), o.nweights = number(r), o.weights_normalization = byte(r) % 3, o.activation = byte(r) % 4;
    return make_shortcut_layer(l, &o, sources, n, rule);
}

static status make_pool(layer **l, reader *r, shape in, int average, const layer_rule *rule) {
    maxpool_options o;
    memset(&o, 0, sizeof o);
    o.c = in.c, o.h = in.h, o.w = in.w;
    o.size = number(r), o.stride_x = number(r), o.stride_y = number(r), o.padding = number(r);
    o.out_channels = byte(r) & 1 ? number(r) : 0, o.antialiasing = byte(r) % 3, o.average = average;
    return make_maxpool_layer(l, &o, rule);
}

static status make_local(layer **l, reader *r, shape in, const batchnorm_rule *bn, const layer_rule *rule) {
    local_options o;
    memset(&o, 0, sizeof o);
    o.c = in.c, o.h = in.h, o.w = in.w;
    o.n = number(r), o.size = number(r), o.stride = number(r), o.pad = number(r), o.activation = byte(r) % 4;
    if (byte(r) & 1) return make_local_layer(l, &o, rule);
    o.batch_normalize = byte(r) & 1;
    return make_deconvolutional_layer(l, &o, bn, rule);
}

static status make_small(layer **l, reader *r, shape in, shape source, const layer_rule *rule) {
    size_t a = number(r), b = number(r);
    switch (byte(r) % 10) {
        case 0: return make_reorg_extra_layer(l, in.c, in.h, in.w, a, rule);
        case 1: return make_activation_layer(l, in.c, in.h, in.w, (activation)(a % 4), rule);
        case 2: return make_l2norm_layer(l, in.c, in.h, in.w, rule);
        case 3: return make_normalization_layer(l, in.c, in.h, in.w, a, real(r), real(r), real(r), rule);
        case 4: return make_crop_layer(l, in.c, in.h, in.w, a, b, byte(r) & 1);
        case 5: return make_implicit_layer(l, a, b);
        case 6: return make_scale_channels_layer(l, in, source, a & 1, (activation)(b % 4), rule);
        case 7: return make_dropout_layer(l, in.c, in.h, in.w, real(r), rule);
        case 8: return make_logistic_layer(l, in.c, in.h, in.w, rule);
        default: return make_sam_layer(l, in, source, (activation)(b % 4), rule);
    }
}

static status make_any(layer **l, reader *r, shape in, const shape *sources, size_t n) {
    layer_rule rule = a_layer_rule(r);
    batchnorm_rule bn = a_batchnorm_rule(r);
    size_t a = number(r), b = number(r), c = number(r), d = number(r);
    convolutional_options convolution;
    switch (byte(r) % 18) {
        case 0: convolution = a_convolution(r, in); return make_convolutional_layer(l, &convolution, &bn, &rule);
        case 1: return make_connected_layer(l, in.c * in.h * in.w, a, (activation)(b % 4), c & 1, &bn, &rule);
        case 2: return make_batchnorm_layer(l, in.c, in.h, in.w, &bn);
        case 3: return make_pool(l, r, in, a & 1, &rule);
        case 4: return make_avgpool_layer(l, in.c, in.h, in.w);
        case 5: return make_upsample_layer(l, in.c, in.h, in.w, a, b & 1, real(r), &rule);
        case 6: return make_reorg_layer(l, in.c, in.h, in.w, a, b & 1, c & 1, d & 1, &rule);
        case 7: return make_route_layer(l, sources, n, a, b);
        case 8: return make_sum(l, r, in, sources, n, &rule);
        case 9: return make_softmax_layer(l, in.c, in.h, in.w, a, real(r), &rule);
        case 10:
        case 11: return make_recurrent(l, r, in, &bn, &rule);
        case 12: return make_local(l, r, in, &bn, &rule);
        case 13:
        case 14: return n ? make_small(l, r, in, sources[0], &rule) : STATUS_SHAPE;
        default: return make_head(l, r, in, &rule, byte(r) % 5);
    }
}

/* Every other delta is wanted, all of exactly the sizes that backward may write. */
static void run_backward(layer *l, network_state *state, size_t floats, const shape *sources, size_t n) {
    float *into = calloc(floats + 1, sizeof *into), *deltas[8] = {0};
    update_options o = {state->batch, 0.1f, 0.9f, 0.5f};
    for (size_t i = 0; i < n; i += 2)
        deltas[i] = calloc(state->batch * sources[i].c * sources[i].h * sources[i].w + 1, sizeof **deltas);
    state->delta = into, state->source_deltas = deltas;
    if (prepare_delta(l, state->batch, DELTA_START_CLEARED) == STATUS_OK) {
        for (size_t i = 0; i < state->batch * l->outputs; ++i) l->delta[i] = (float)(i % 7) - 3;
        if (backward_layer(l, state) == STATUS_OK) (void)update_layer(l, &o);
    }
    for (size_t i = 0; i < n; ++i) free(deltas[i]);
    free(into);
}

static void run(layer *l, shape in, const shape *sources, size_t n, size_t batch, int train) {
    size_t floats = batch * in.c * in.h * in.w;
    if (l->inputs > MOST_FLOATS || l->outputs > MOST_FLOATS || floats > MOST_FLOATS) return;
    float *input = calloc(floats + 1, sizeof *input), *from[8] = {0};
    for (size_t i = 0; i < floats; ++i) input[i] = (float)((i * 37) % 101) - 50;
    int fits = 1;
    for (size_t i = 0; i < n; ++i) {
        size_t size = batch * sources[i].c * sources[i].h * sources[i].w;
        fits = fits && size <= MOST_FLOATS;
        from[i] = calloc((fits ? size : 0) + 1, sizeof **from);
    }
    network_state state;
    memset(&state, 0, sizeof state);
    state.batch = batch, state.steps = in.w & 1 ? 0 : batch, state.train = train, state.cache = train, state.allow_degenerate = 1,
    state.input = input;
    state.sources = (const float *const *)from;
    if (l->probability > 0 && prepare_dropout(l, batch) != STATUS_OK) fits = 0;
    if (fits && forward_layer(l, &state) == STATUS_OK && forward_layer(l, &state) == STATUS_OK) {
        if (l->backward && train) run_backward(l, &state, floats, sources, n);
        if (l->scales && l->forward && !l->batchnorm) (void)backward_batchnorm_layer(l, input, NULL, &state);
        if (l->anchors && l->mask) (void)yolo_num_detections(l, batch - 1, 0.5f);
    }
    for (size_t i = 0; i < n; ++i) free(from[i]);
    free(input);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    reader r = {data, size};
    set_num_threads(1 + (byte(&r) & 1));
    limit_arrays(LIMIT);
    shape in = a_shape(&r), sources[8];
    size_t n = byte(&r) % 8, batch = 1 + byte(&r) % 3;
    for (size_t i = 0; i < n; ++i) sources[i] = a_shape(&r);
    int small = in.c < 1000 && in.h < 1000 && in.w < 1000;
    for (size_t i = 0; i < n; ++i) small = small && sources[i].c < 1000 && sources[i].h < 1000 && sources[i].w < 1000;
    layer *l = NULL;
    int train = byte(&r) & 1;
    if (make_any(&l, &r, in, sources, n) == STATUS_OK && small) run(l, in, sources, n, batch, train);
    free_layer(l);
    return 0;
}
