/* Layers that move values about: pooling, upsampling, reorg (pjreddie/darknet src/maxpool_layer.c, avgpool_layer.c, blas.c). */
#include <float.h>

#include "../internal.h"
#include "kernels.h"
#include "windows.h"

typedef struct {
    const float *input;
    const maxpool_shape *s;
    float *output;
} maxpool_job;

/* out[i] = the larger of it and from[i * stride]; a NaN is never larger */
static void take_larger(const float *from, size_t stride, size_t count, float *out) {
    if (stride == 1)
        for (size_t i = 0; i < count; ++i) out[i] = from[i] > out[i] ? from[i] : out[i];
    else if (stride == 2)
        for (size_t i = 0; i < count; ++i) out[i] = from[2 * i] > out[i] ? from[2 * i] : out[i];
    else
        for (size_t i = 0; i < count; ++i) out[i] = from[i * stride] > out[i] ? from[i * stride] : out[i];
}

/* One row of windows, all of them element by element at once, each in the order of its rows and columns. The padding counts as
 * -FLT_MAX and a NaN is never larger, so a window of NaN gives -FLT_MAX. */
static void pool_row(const maxpool_shape *s, const float *plane, size_t row, float *out) {
    size_t offset = s->padding / 2, last = (s->out_w - 1) * s->stride_x;
    range rows = covered(row * s->stride_y, s->size, offset, s->h);
    size_t begin = offset > last ? offset - last : 0, end = s->size < s->w + offset ? s->size : s->w + offset;
    for (size_t i = 0; i < s->out_w; ++i) out[i] = -FLT_MAX;
    for (size_t y = rows.begin; y < rows.end; ++y) {
        for (size_t m = begin; m < end; ++m) { /* column m of the windows; those of first..stop have it inside the image */
            size_t first = m < offset ? (offset - m + s->stride_x - 1) / s->stride_x : 0;
            size_t stop = (s->w + offset - m - 1) / s->stride_x + 1;
            if (stop > s->out_w) stop = s->out_w;
            if (first >= stop) continue;
            take_larger(plane + y * s->w + first * s->stride_x + m - offset, s->stride_x, stop - first, out + first);
        }
    }
}

static void maxpool_planes(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const maxpool_job *j = context;
    const maxpool_shape *s = j->s;
    for (size_t p = begin; p < end; ++p) {
        const float *plane = j->input + p * s->h * s->w;
        float *out = j->output + p * s->out_h * s->out_w;
        for (size_t row = 0; row < s->out_h; ++row) pool_row(s, plane, row, out + row * s->out_w);
    }
}

void maxpool_cpu(const float *input, size_t batch, const maxpool_shape *s, float *output) {
    maxpool_job j = {input, s, output};
    parallel_for(batch * s->c, s->out_h * s->out_w * s->size * s->size, maxpool_planes, &j);
}

static void local_avgpool_planes(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const maxpool_job *j = context;
    const maxpool_shape *s = j->s;
    size_t pixels = s->out_h * s->out_w;
    for (size_t item = begin; item < end; ++item) {
        const float *plane = j->input + item / pixels * s->h * s->w;
        range rows = covered(item % pixels / s->out_w * s->stride_y, s->size, s->padding / 2, s->h);
        range columns = covered(item % s->out_w * s->stride_x, s->size, s->padding / 2, s->w);
        float sum = 0;
        size_t counter = 0;
        for (size_t y = rows.begin; y < rows.end; ++y)
            for (size_t x = columns.begin; x < columns.end; ++x, ++counter) sum += plane[y * s->w + x];
        j->output[item] = sum / (float)counter;
    }
}

void local_avgpool_cpu(const float *input, size_t batch, const maxpool_shape *s, float *output) {
    maxpool_job j = {input, s, output};
    parallel_for(batch * s->c * s->out_h * s->out_w, s->size * s->size, local_avgpool_planes, &j);
}

void maxpool_depth_cpu(const float *input, extent e, size_t out_c, float *output) {
    for (size_t p = 0; p < e.batch * out_c; ++p) {
        const float *image = input + p / out_c * e.c * e.spatial;
        float *out = output + p * e.spatial;
        for (size_t i = 0; i < e.spatial; ++i) out[i] = -FLT_MAX;
        for (size_t k = p % out_c; k < e.c; k += out_c)
            for (size_t i = 0; i < e.spatial; ++i)
                if (image[k * e.spatial + i] > out[i]) out[i] = image[k * e.spatial + i];
    }
}

void crop_cpu(const float *input, size_t planes, size_t h, size_t w, size_t out_h, size_t out_w, float scale, float shift,
              float *output) {
    size_t top = (h - out_h) / 2, left = (w - out_w) / 2;
    for (size_t row = 0; row < planes * out_h; ++row) {
        const float *line = input + (row / out_h * h + row % out_h + top) * w + left;
        for (size_t i = 0; i < out_w; ++i) *output++ = line[i] * scale + shift;
    }
}

void avgpool_cpu(const float *input, extent e, float *output) {
    for (size_t p = 0; p < e.batch * e.c; ++p) {
        const float *plane = input + p * e.spatial;
        float sum = 0;
        for (size_t i = 0; i < e.spatial; ++i) sum += plane[i];
        output[p] = sum / (float)e.spatial;
    }
}

void upsample_cpu(const float *input, size_t planes, size_t h, size_t w, size_t stride, float scale, float *output) {
    for (size_t row = 0; row < planes * h * stride; ++row) {
        const float *line = input + row / stride * w;
        for (size_t column = 0; column < w * stride; ++column) *output++ = scale * line[column / stride];
    }
}

void downsample_cpu(const float *input, size_t planes, size_t h, size_t w, size_t stride, float scale, float *output) {
    for (size_t i = 0; i < planes * h * w; ++i) output[i] = 0;
    add_downsampled_cpu(input, planes, h, w, stride, scale, output);
}

void reorg_cpu(const float *input, size_t batch, size_t c, size_t h, size_t w, size_t stride, int scatter, float *output) {
    size_t small_c = c / (stride * stride);
    for (size_t b = 0; b < batch; ++b) {
        for (size_t k = 0; k < c; ++k) {
            size_t offset = k / small_c;
            for (size_t row = 0; row < h; ++row) {
                for (size_t column = 0; column < w; ++column) {
                    size_t in = column + w * (row + h * (k + c * b));
                    size_t x = column * stride + offset % stride, y = row * stride + offset / stride;
                    size_t out = x + w * stride * (y + h * stride * (k % small_c + small_c * b));
                    if (scatter)
                        output[out] = input[in];
                    else
                        output[in] = input[out];
                }
            }
        }
    }
}

void flatten_cpu(const float *input, size_t batch, size_t size, size_t layers, int forward, float *output) {
    for (size_t b = 0; b < batch; ++b) {
        for (size_t c = 0; c < layers; ++c) {
            for (size_t i = 0; i < size; ++i) {
                size_t planar = (b * layers + c) * size + i, flat = (b * size + i) * layers + c;
                output[forward ? flat : planar] = input[forward ? planar : flat];
            }
        }
    }
}
