/* The arithmetic of the fast kernels: moments in float, merged instead of subtracted, so that a large mean does not cancel a small
 * variance. One text for C and for CUDA. */
#ifndef DARKNETBN_MOMENTS_H
#define DARKNETBN_MOMENTS_H

#include "../kernels/device_batchnorm.h"

/* Of some values: how many, their mean, and the sum of (x - mean)^2 */
typedef struct {
    float n, mean, squares;
} part_moments;

/* Those of two parts together (Chan, Golub and LeVeque 1979) */
DARKNETBN_DEVICE part_moments moments_of_both(part_moments a, part_moments b) {
    if (b.n == 0) return a;
    if (a.n == 0) return b;
    part_moments both = {a.n + b.n, 0, 0};
    float apart = b.mean - a.mean, share = b.n / both.n;
    both.mean = a.mean + apart * share;
    both.squares = a.squares + b.squares + apart * apart * (a.n * share);
    return both;
}

/* Of count values that lie in registers, in two passes */
DARKNETBN_DEVICE part_moments moments_of_values(const float *values, int count) {
    part_moments m = {(float)count, 0, 0};
    float sum = 0;
    for (int i = 0; i < count; ++i) sum += values[i];
    m.mean = sum / m.n;
    for (int i = 0; i < count; ++i) {
        float off = values[i] - m.mean;
        m.squares += off * off;
    }
    return m;
}

/* Over n or n - 1 */
DARKNETBN_DEVICE float variance_of_moments(part_moments m, denominator d) {
    return m.squares / (d == DENOMINATOR_N ? m.n : m.n - 1.F);
}

/* What one channel's deltas are multiplied by: delta * direct + (x - mean) * per_off + third */
typedef struct {
    float mean, direct, per_off, third;
} fast_terms;

DARKNETBN_DEVICE fast_terms terms_of_channel(float mean, float variance, float scale, float mean_delta, float variance_delta,
                                             float n, const epsilon_rule *direct, int constant) {
    fast_terms t = {mean, scale / device_root(variance, direct), 0, 0};
    if (!constant) t.per_off = variance_delta * 2.F / n, t.third = mean_delta / n;
    return t;
}

DARKNETBN_DEVICE float fast_delta(const fast_terms *t, float x, float delta) {
    return delta * t->direct + (x - t->mean) * t->per_off + t->third;
}

#endif
