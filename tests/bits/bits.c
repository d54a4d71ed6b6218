/* Holds every variant of the fast kernels against the plain ones, and prints one line for each kernel with a sum over the bits of its
 * outputs, which is the same on every machine. Ends with 1 and a sentence at the first difference. NaNs count as one value: their
 * bits are the processor's own. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "darknetbn.h"

/* ---- values ----------------------------------------------------------------------------------------------------------------- */

static uint64_t state;

static uint32_t draw(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

/* Numbers around 0, and one in 16 that is none of them */
static float draw_float(int special) {
    const float odd[] = {NAN, INFINITY, -INFINITY, 0, -0.F, 1e-40F, -1e-45F, 3e38F, 88.5F, -104, 20.5F, 1e-20F};
    if (special && draw() % 16 == 0) return odd[draw() % (sizeof odd / sizeof *odd)];
    return (float)((int32_t)draw() - (1 << 30)) / (float)(1 << 28);
}

static float *make(size_t n, int special) {
    float *x = malloc((n + 1) * sizeof *x);
    if (!x) exit(2);
    for (size_t i = 0; i < n; ++i) x[i] = draw_float(special);
    return x;
}

static float *make_nans(size_t n) {
    float *x = malloc(n * sizeof *x);
    if (!x) exit(2);
    for (size_t i = 0; i < n; ++i) x[i] = NAN;
    return x;
}

static float *copy(const float *x, size_t n) {
    float *to = malloc((n + 1) * sizeof *to);
    if (!to) exit(2);
    return memcpy(to, x, n * sizeof *to);
}

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return isnan(x) ? 0x7fc00000 : bits;
}

static uint64_t sum_of(uint64_t sum, const float *x, size_t n) {
    for (size_t i = 0; i < n; ++i) sum = (sum ^ bits_of(x[i])) * 1099511628211u;
    return sum;
}

static void demand_equal(const float *fast, const float *plain, size_t n, const char *kernel, size_t of) {
    for (size_t i = 0; i < n; ++i) {
        if (bits_of(fast[i]) == bits_of(plain[i])) continue;
        printf("%s %zu, value %zu of %zu: %s gives %a, plain %a\n", kernel, of, i, n, cpu_variant(), (double)fast[i],
               (double)plain[i]);
        exit(1);
    }
}

/* ---- kernels ---------------------------------------------------------------------------------------------------------------- */

static uint64_t convolution(size_t i, uint64_t sum) {
    static const convolution_shape shapes[] = {
        /* c, h, w, n, out_h, out_w, size, stride_x, stride_y, pad_x, pad_y, dilation, direct */
        {3, 9, 11, 5, 9, 11, 3, 1, 1, 1, 1, 1, 0},   {80, 5, 7, 27, 5, 7, 3, 1, 1, 1, 1, 1, 0},
        {5, 13, 13, 26, 7, 7, 3, 2, 2, 1, 1, 1, 0},  {7, 8, 17, 14, 4, 13, 5, 1, 1, 0, 0, 1, 0},
        {700, 3, 7, 13, 3, 7, 1, 1, 1, 0, 0, 1, 1},  {1024, 2, 3, 12, 2, 3, 1, 1, 1, 0, 0, 1, 1},
        {1, 19, 33, 1, 19, 33, 3, 1, 1, 1, 1, 1, 0}, {1, 17, 21, 1, 8, 11, 5, 2, 2, 2, 1, 1, 0},
        {2, 10, 40, 3, 10, 40, 3, 1, 1, 3, 3, 3, 0}, {4, 6, 6, 9, 2, 2, 3, 3, 3, 1, 1, 1, 0},
    };
    if (i >= sizeof shapes / sizeof *shapes) return 0;
    const convolution_shape *s = &shapes[i];
    size_t images = s->c == 1 ? 6 : 2, inputs = images * s->c * s->h * s->w, outputs = images * s->n * s->out_h * s->out_w;
    size_t threads = get_num_threads(), weights = s->n * s->c * s->size * s->size;
    float *x = make(inputs, i % 2), *w = make(2 * weights, i % 2), *plain = make(outputs, 0), *fast = make(outputs, 0);
    float *scratch = make_nans(convolve_scratch(s) * threads);
    convolve_plain(s, images, 2, x, w, plain);
    convolve(s, images, 2, x, w, fast, scratch, threads);
    demand_equal(fast, plain, outputs, "convolution", i);
    sum = sum_of(sum, fast, outputs);
    free(x), free(w), free(plain), free(fast), free(scratch);
    return sum;
}

typedef struct {
    float *output, *x, *x_norm, *channels;
    batchnorm_pass pass;
} step;

/* A pass over copies of the arrays; channels: seven arrays of c values */
static step run(void (*kernel)(const batchnorm_pass *), const batchnorm_pass *like, const float *x, const float *x_norm,
                const float *channels) {
    size_t n = like->batch * like->c * like->spatial, c = like->c;
    step s = {copy(x, n), copy(x, n), copy(x_norm, n), copy(channels, 7 * c), *like};
    s.pass.output = s.output, s.pass.x = s.x, s.pass.x_norm = s.x_norm;
    float **of_channels[] = {&s.pass.mean,         &s.pass.variance,   &s.pass.kept,          &s.pass.scale_updates,
                             &s.pass.bias_updates, &s.pass.mean_delta, &s.pass.variance_delta};
    for (size_t k = 0; k < 7; ++k) *of_channels[k] = s.channels + k * c;
    kernel(&s.pass);
    return s;
}

static void free_step(step *s) {
    free(s->output), free(s->x), free(s->x_norm), free(s->channels);
}

static uint64_t batchnorm(size_t i, uint64_t sum) {
    void (*const kernels[][2])(const batchnorm_pass *) = {{batchnorm_train, batchnorm_train_plain},
                                                          {batchnorm_infer, batchnorm_infer_plain},
                                                          {batchnorm_backward, batchnorm_backward_plain}};
    static const size_t sizes[][3] = {{2, 3, 5}, {3, 17, 33}, {1, 40, 150}, {2, 70, 19}, {1, 1, 1}};
    size_t n_sizes = sizeof sizes / sizeof *sizes, kernel = i / (2 * n_sizes), is_float = i / n_sizes % 2;
    if (kernel >= 3) return 0;
    epsilon_rule epsilon = {1e-5, is_float ? SIDE_INSIDE : SIDE_OUTSIDE, LITERAL_DOUBLE};
    batchnorm_rule rule = {.forward = epsilon, .direct_term = epsilon, .statistic_terms = epsilon};
    rule.intermediate = is_float ? PRECISION_FLOAT : PRECISION_DOUBLE, rule.bias_gradient = 1;
    const size_t *size = sizes[i % n_sizes], n = size[0] * size[1] * size[2];
    float *x = make(n, 0), *delta = make(n, 0), *x_norm = make(n, 0), *channels = make(9 * size[1], 0);
    for (size_t f = 0; f < size[1]; ++f) channels[size[1] + f] = fabsf(channels[size[1] + f]) + .1F; /* variance */
    batchnorm_pass pass = {.batch = size[0], .c = size[1], .spatial = size[2], .rule = &rule, .input = delta};
    pass.scales = channels + 7 * size[1], pass.biases = channels + 8 * size[1];
    step fast = run(kernels[kernel][0], &pass, x, x_norm, channels), plain = run(kernels[kernel][1], &pass, x, x_norm, channels);
    demand_equal(fast.output, plain.output, n, "batchnorm", i);
    demand_equal(fast.x_norm, plain.x_norm, n, "batchnorm x_norm", i);
    demand_equal(fast.channels, plain.channels, 7 * size[1], "batchnorm channels", i);
    sum = sum_of(sum_of(sum, fast.output, n), fast.channels, 7 * size[1]);
    free_step(&fast), free_step(&plain);
    free(x), free(delta), free(x_norm), free(channels);
    return sum;
}

static uint64_t activations(size_t i, uint64_t sum) {
    enum { N = 3001 };
    precision precision = i % 2 ? PRECISION_DOUBLE : PRECISION_FLOAT;
    arithmetic_rule rule = {precision, precision, precision, precision, precision, precision, precision, precision};
    activation kind = (activation)(i / 2);
    if (kind > ACTIVATION_HARDTAN) return 0;
    float *x = make(N, 1);
    for (size_t k = 0; k < N; ++k) x[k] *= k % 3 ? 4 : 20;
    float *plain = copy(x, N), *fast = copy(x, N);
    activate_array_plain(plain, N, kind, &rule, 1);
    activate_array(fast, N, kind, &rule, 1);
    demand_equal(fast, plain, N, "activation", i);
    sum = sum_of(sum, fast, N);
    free(x), free(plain), free(fast);
    return sum;
}

static uint64_t functions(size_t i, uint64_t sum) {
    enum { N = 20000 };
    if (i > ELEMENTARY_CUBE) return 0;
    float *x = make(N, 1), *out = make(N, 0);
    for (size_t k = 0; k < N; ++k) x[k] *= k % 3 ? 4 : 25;
    elementary_floats((elementary_function)i, x, N, out);
    sum = sum_of(sum, out, N);
    free(x), free(out);
    return sum;
}

int main(void) {
    uint64_t (*const kernels[])(size_t, uint64_t) = {convolution, batchnorm, activations, functions};
    const char *const names[] = {"convolution", "batchnorm", "activations", "functions"};
    for (size_t v = 0; cpu_variant_at(v); ++v) {
        if (set_cpu_variant(cpu_variant_at(v)) != STATUS_OK) return 2;
        for (size_t k = 0; k < sizeof kernels / sizeof *kernels; ++k) {
            uint64_t sum = 14695981039346656037u, next;
            state = 1;
            set_num_threads(v % 2 + 1);
            for (size_t i = 0; (next = kernels[k](i, sum)) != 0; ++i) sum = next;
            printf("%s %s %016llx\n", cpu_variant(), names[k], (unsigned long long)sum);
        }
    }
    return 0;
}
