/* What layers that move values about do to deltas (pjreddie/darknet src/maxpool_layer.c, avgpool_layer.c, blas.c upsample_cpu;
 * AlexeyAB/darknet src/maxpool_layer.c backward_local_avgpool_layer). */
#include <float.h>
#include <stdint.h>

#include "../internal.h"
#include "kernels.h"
#include "windows.h"

typedef struct {
    const float *input, *delta;
    const maxpool_shape *s;
    int exact;
    float *into;
} job;

/* Where the largest value of a window lies; SIZE_MAX where none is larger than -FLT_MAX, as in padding alone, or all are NaN. */
static size_t winner(const float *plane, size_t width, range rows, range columns) {
    float largest = -FLT_MAX;
    size_t at = SIZE_MAX;
    for (size_t y = rows.begin; y < rows.end; ++y)
        for (size_t x = columns.begin; x < columns.end; ++x)
            if (plane[y * width + x] > largest) largest = plane[at = y * width + x];
    return at;
}

static void reward_planes(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const job *j = context;
    const maxpool_shape *s = j->s;
    size_t offset = s->padding / 2;
    for (size_t p = begin; p < end; ++p) {
        const float *plane = j->input + p * s->h * s->w, *delta = j->delta + p * s->out_h * s->out_w;
        float *into = j->into + p * s->h * s->w;
        for (size_t row = 0; row < s->out_h; ++row) {
            range rows = covered(row * s->stride_y, s->size, offset, s->h);
            for (size_t column = 0; column < s->out_w; ++column) {
                size_t at = winner(plane, s->w, rows, covered(column * s->stride_x, s->size, offset, s->w));
                if (at != SIZE_MAX) into[at] += delta[row * s->out_w + column];
            }
        }
    }
}

void maxpool_gradients(const float *input, const float *delta, size_t batch, const maxpool_shape *s, float *into) {
    job j = {input, delta, s, 0, into};
    parallel_for(batch * s->c, s->out_h * s->out_w * s->size * s->size, reward_planes, &j);
}

void maxpool_depth_gradients(const float *input, const float *delta, extent e, size_t out_c, float *into) {
    for (size_t p = 0; p < e.batch * out_c; ++p) {
        size_t image = p / out_c * e.c * e.spatial;
        for (size_t i = 0; i < e.spatial; ++i) {
            float largest = -FLT_MAX;
            size_t at = SIZE_MAX;
            for (size_t k = p % out_c; k < e.c; k += out_c)
                if (input[image + k * e.spatial + i] > largest) largest = input[at = image + k * e.spatial + i];
            if (at != SIZE_MAX) into[at] += delta[p * e.spatial + i];
        }
    }
}

static void share_planes(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const job *j = context;
    const maxpool_shape *s = j->s;
    size_t pixels = s->out_h * s->out_w;
    for (size_t item = begin * pixels; item < end * pixels; ++item) {
        float *into = j->into + item / pixels * s->h * s->w;
        range rows = covered(item % pixels / s->out_w * s->stride_y, s->size, s->padding / 2, s->h);
        range columns = covered(item % s->out_w * s->stride_x, s->size, s->padding / 2, s->w);
        size_t within =
            rows.end > rows.begin && columns.end > columns.begin ? (rows.end - rows.begin) * (columns.end - columns.begin) : 0;
        float each = j->delta[item] / (float)(j->exact ? within : s->size * s->size);
        for (size_t y = rows.begin; y < rows.end; ++y)
            for (size_t x = columns.begin; x < columns.end; ++x) into[y * s->w + x] += each;
    }
}

void local_avgpool_gradients(const float *delta, size_t batch, const maxpool_shape *s, int exact, float *into) {
    job j = {NULL, delta, s, exact, into};
    parallel_for(batch * s->c, s->out_h * s->out_w * s->size * s->size, share_planes, &j);
}

void avgpool_gradients(const float *delta, extent e, float *into) {
    for (size_t p = 0; p < e.batch * e.c; ++p) {
        float each = delta[p] / (float)e.spatial, *plane = into + p * e.spatial;
        for (size_t i = 0; i < e.spatial; ++i) plane[i] += each;
    }
}

void add_downsampled_cpu(const float *input, size_t planes, size_t h, size_t w, size_t stride, float scale, float *output) {
    for (size_t row = 0; row < planes * h * stride; ++row) {
        float *line = output + row / stride * w;
        for (size_t column = 0; column < w * stride; ++column) line[column / stride] += scale * *input++;
    }
}
