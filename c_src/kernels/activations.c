/* Activations: which curve (curves.h) over which values. The loops of a variant stand for the plain one, with the same bits. */
#include "../internal.h"
#include "curves.h"
#include "variants.h"

void activate_array_plain(float *x, size_t n, activation a, const arithmetic_rule *rule, int host) {
    const precision p = precision_of_activation(a, rule, host);
    const elementary *m = chosen_elementary();
    for (size_t i = 0; i < n; ++i) x[i] = activated(x[i], a, p, m);
}

static int calls_functions(activation a) {
    switch (a) {
        case ACTIVATION_LOGISTIC:
        case ACTIVATION_TANH:
        case ACTIVATION_ELU:
        case ACTIVATION_SELU:
        case ACTIVATION_MISH:
        case ACTIVATION_SWISH:
        case ACTIVATION_GELU:
        case ACTIVATION_LOGGY: return 1;
        default: return 0;
    }
}

activator activator_of(activation a, const arithmetic_rule *rule, int host) {
    activator f = {.a = a, .p = precision_of_activation(a, rule, host)};
    if (!calls_functions(a) || uses_own_functions()) f.loop = chosen_variant()->activations[a][f.p];
    return f;
}

void activate_values(const activator *f, float *x, size_t n, float bias) {
    if (f->loop) {
        f->loop(x, n, bias);
        return;
    }
    const elementary *functions = chosen_elementary();
    for (size_t i = 0; i < n; ++i) x[i] = activated(x[i] + bias, f->a, f->p, functions);
}

typedef struct {
    float *x;
    activator f;
    size_t work; /* of one value */
    const float *biases;
    extent e;
} job;

static job job_of(float *x, activation a, const arithmetic_rule *rule, int host) {
    job j = {.x = x, .f = activator_of(a, rule, host)};
    j.work = !calls_functions(a) ? 2 : j.f.loop ? 16 : 32;
    return j;
}

static void activate_part(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const job *j = context;
    activate_values(&j->f, j->x + begin, end - begin, -0.F); /* which changes no value that it is added to */
}

static void activate_planes(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const job *j = context;
    for (size_t i = begin; i < end; ++i) activate_values(&j->f, j->x + i * j->e.spatial, j->e.spatial, j->biases[i % j->e.c]);
}

void activate_array(float *x, size_t n, activation a, const arithmetic_rule *rule, int host) {
    if (a == ACTIVATION_LINEAR || is_over_channels(a)) return;
    job j = job_of(x, a, rule, host);
    parallel_for(n, j.work, activate_part, &j);
}

/* Planes of so few values are not worth a loop each. */
enum { SMALL_PLANE = 16 };

void activate_biased(float *x, const float *biases, extent e, activation a, const arithmetic_rule *rule, int host) {
    if (is_over_channels(a) || e.spatial < SMALL_PLANE) {
        add_bias(x, biases, e);
        activate_channels(x, e, a, rule, host);
        return;
    }
    job j = job_of(x, a, rule, host);
    j.biases = biases, j.e = e;
    parallel_for(e.batch * e.c, e.spatial * j.work, activate_planes, &j);
}

/* ---- over the channels of a pixel ------------------------------------------------------------------------------------------- */

typedef struct {
    float *x;
    extent e;
    activation a;
} channel_job;

static void share_channels(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    const channel_job *j = context;
    const elementary *functions = chosen_elementary();
    for (size_t i = begin; i < end; ++i) {
        float *pixel = j->x + i / j->e.spatial * j->e.c * j->e.spatial + i % j->e.spatial;
        if (j->a == ACTIVATION_NORMALIZE_CHANNELS)
            share_positive(pixel, j->e.c, j->e.spatial);
        else
            share_exponentials(pixel, j->e.c, j->e.spatial, j->a == ACTIVATION_NORMALIZE_CHANNELS_SOFTMAX_MAXVAL, functions);
    }
}

void activate_channels(float *x, extent e, activation a, const arithmetic_rule *rule, int host) {
    if (!is_over_channels(a)) {
        activate_array(x, e.batch * e.c * e.spatial, a, rule, host);
        return;
    }
    channel_job j = {x, e, a};
    parallel_for(e.batch * e.spatial, e.c * 32, share_channels, &j);
}
