/* The inner loop of a depthwise convolution: one filter of one channel. Included beside tiles.h. */

static void copy_by_phase(const convolution_shape *s, const float *image, float *to, size_t width) {
    size_t step = s->stride_x;
    for (size_t y = 0; y < s->h; ++y) {
        const float *from = image + y * s->w;
        for (size_t phase = 0; phase < step; ++phase) {
            size_t x = (phase + step - s->pad_x % step) % step; /* the first column of that phase */
            float *row = to + ((y + s->pad_y) * step + phase) * width + (x + s->pad_x) / step;
            if (step == 2)
                for (; x < s->w; x += 2) *row++ = from[x];
            else
                for (; x < s->w; x += step) *row++ = from[x];
        }
    }
}

static void depthwise(const convolution_shape *s, const float *image, const float *weights, float *scratch, float *output) {
    size_t step = s->stride_x, width = (s->w + 2 * s->pad_x) / step + 1, line = step * width, area = s->size * s->size;
    size_t at[DEPTHWISE_AREA]; /* of each weight's pixel, from the first one's */
    for (size_t k = 0; k < area; ++k) {
        size_t dx = k % s->size * s->dilation;
        at[k] = k / s->size * s->dilation * line + dx % step * width + dx / step;
    }
    memset(scratch, 0, depthwise_scratch(s) * sizeof *scratch);
    copy_by_phase(s, image, scratch, width);
    for (size_t y = 0; y < s->out_h; ++y) {
        for (size_t x = 0; x < s->out_w; x += STRIP) {
            pixel_lanes left = {0}, right = {0};
            const float *from = scratch + y * s->stride_y * line + x;
            for (size_t k = 0; k < area; ++k) {
                left += weights[k] * load_pixels(from + at[k]);
                right += weights[k] * load_pixels(from + at[k] + TILE_LANES);
            }
            float *out = output + y * s->out_w + x, both[STRIP];
            if (x + STRIP <= s->out_w) {
                store_pixels(out, left), store_pixels(out + TILE_LANES, right);
                continue;
            }
            store_pixels(both, left), store_pixels(both + TILE_LANES, right);
            for (size_t i = 0; x + i < s->out_w; ++i) out[i] = both[i];
        }
    }
}
