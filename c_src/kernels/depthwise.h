/* The inner loop of a depthwise convolution: one filter of one channel. Included beside tiles.h. */

/* Floats of a copied row of one phase; a line has those of all phases. */
static size_t width_of_phase(const convolution_shape *s) {
    return (s->w + 2 * s->pad_x) / s->stride_x + 1;
}

static void copy_by_phase(const convolution_shape *s, const float *image, float *to) {
    size_t step = s->stride_x, width = width_of_phase(s);
    for (size_t y = 0; y < s->h; ++y) {
        const float *from = image + y * s->w;
        for (size_t phase = 0; phase < step; ++phase) {
            size_t x = (phase + step - s->pad_x % step) % step; /* the first column of that phase */
            float *row = to + ((y + s->pad_y) * step + phase) * width + (x + s->pad_x) / step;
            if (step == 1)
                memcpy(row, from, s->w * sizeof *row);
            else if (step == 2)
                for (; x < s->w; x += 2) *row++ = from[x];
            else
                for (; x < s->w; x += step) *row++ = from[x];
        }
    }
}

/* The products of a row's outputs from x on, in vectors at `from`; at: where each weight's first pixel lies */
static inline __attribute__((always_inline)) void row_sums(size_t area, const size_t *at, const lanes *weights, const float *from,
                                                           size_t vectors, lanes *sums) {
    for (size_t v = 0; v < vectors; ++v) sums[v] = (lanes){0};
    for (size_t k = 0; k < area; ++k)
        for (size_t v = 0; v < vectors; ++v) sums[v] += weights[k] * load(from + at[k] + v * LANES);
}

/* size, step, dilation: of s, constants where that is faster */
static inline __attribute__((always_inline)) void all_rows(const convolution_shape *s, size_t size, size_t step, size_t dilation,
                                                           const float *weights, const float *scratch, float *output) {
    size_t width = width_of_phase(s), line = step * width, area = size * size, at[DEPTHWISE_AREA];
    lanes spread[DEPTHWISE_AREA], sums[2];
    for (size_t k = 0; k < area; ++k) {
        size_t dx = k % size * dilation;
        at[k] = k / size * dilation * line + dx % step * width + dx / step;
        spread[k] = weights[k] - (lanes){0};
    }
    for (size_t y = 0; y < s->out_h; ++y, output += s->out_w) {
        const float *from = scratch + y * s->stride_y * line;
        size_t x = 0;
        for (; x + 2 * LANES <= s->out_w; x += 2 * LANES) {
            row_sums(area, at, spread, from + x, 2, sums);
            store(output + x, sums[0]), store(output + x + LANES, sums[1]);
        }
        for (; x < s->out_w; x += LANES) {
            row_sums(area, at, spread, from + x, 1, sums);
            if (x + LANES <= s->out_w)
                store(output + x, sums[0]);
            else
                for (size_t i = 0; x + i < s->out_w; ++i) output[x + i] = sums[0][i];
        }
    }
}

static void depthwise(const convolution_shape *s, const float *image, const float *weights, float *scratch, float *output) {
    copy_by_phase(s, image, scratch);
    if (s->size == 3 && s->stride_x == 1 && s->dilation == 1)
        all_rows(s, 3, 1, 1, weights, scratch, output);
    else if (s->size == 3 && s->stride_x == 2 && s->dilation == 1)
        all_rows(s, 3, 2, 1, weights, scratch, output);
    else
        all_rows(s, s->size, s->stride_x, s->dilation, weights, scratch, output);
}
