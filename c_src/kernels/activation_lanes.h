/* Loops over the curves with the package's own functions inlined, which the compiler turns into vectors. Included beside tiles.h. */
#include "curves.h"

enum { STAGE = 256 }; /* values that go through one function before the next */

/* x = curve(x + bias) */
#define LOOP(name, curve)                                                                                                          \
    static void name(float *x, size_t n, float bias) {                                                                             \
        for (size_t i = 0; i < n; ++i) {                                                                                           \
            float v = x[i] + bias;                                                                                                 \
            x[i] = curve;                                                                                                          \
        }                                                                                                                          \
    }
#define LOOPS(name, curve)                                                                                                         \
    LOOP(float_##name, curve(v, PRECISION_FLOAT))                                                                                  \
    LOOP(double_##name, curve(v, PRECISION_DOUBLE))
#define LOOPS_WITH_FUNCTIONS(name, curve)                                                                                          \
    LOOP(float_##name, curve(v, PRECISION_FLOAT, &own_functions))                                                                  \
    LOOP(double_##name, curve(v, PRECISION_DOUBLE, &own_functions))

LOOP(each_linear, v)
LOOP(each_relu, relu(v))
LOOP(each_relu6, relu6(v))
LOOP(each_hardtan, hardtan(v))
LOOP(each_hard_mish, hard_mish(v))
LOOP(each_swish, swish(v, &own_functions))
LOOPS(leaky, leaky)
LOOPS(relie, relie)
LOOPS(ramp, ramp)
LOOPS(plse, plse)
LOOPS(lhtan, lhtan)
LOOPS(stair, stair)
LOOPS_WITH_FUNCTIONS(logistic, logistic)
LOOPS_WITH_FUNCTIONS(loggy, loggy)
LOOPS_WITH_FUNCTIONS(tanh, tanh_of)
LOOPS_WITH_FUNCTIONS(elu, elu)
LOOPS_WITH_FUNCTIONS(selu, selu)
LOOPS_WITH_FUNCTIONS(gelu, gelu)

/* Where the softplus takes a logarithm it is of 1 and more. A NaN may become a number there, which mish multiplies by it again. */
INLINED float softplus_of_exp(float x, float e) {
    float between = (float)log_of_positive((double)(e + 1));
    return x > 20 ? x : x < -20 ? e : between;
}

/* Three functions one after the other have no end within what a processor looks ahead, so each has its loop. */
static void each_mish(float *x, size_t n, float bias) {
    float stage[STAGE];
    for (size_t first = 0; first < n; first += STAGE, x += STAGE) {
        size_t count = n - first < STAGE ? n - first : STAGE;
        for (size_t i = 0; i < count; ++i) x[i] += bias, stage[i] = own_expf(x[i]);
        for (size_t i = 0; i < count; ++i) stage[i] = softplus_of_exp(x[i], stage[i]);
        for (size_t i = 0; i < count; ++i) x[i] *= tanh_of(stage[i], PRECISION_FLOAT, &own_functions);
    }
}

#define BOTH(loop) {loop, loop}
#define EITHER(name) {float_##name, double_##name}

static const activation_loop activation_loops[][2] = {
    [ACTIVATION_LINEAR] = BOTH(each_linear),
    [ACTIVATION_LEAKY] = EITHER(leaky),
    [ACTIVATION_RELU] = BOTH(each_relu),
    [ACTIVATION_RELU6] = BOTH(each_relu6),
    [ACTIVATION_LOGISTIC] = EITHER(logistic),
    [ACTIVATION_TANH] = EITHER(tanh),
    [ACTIVATION_ELU] = EITHER(elu),
    [ACTIVATION_SELU] = EITHER(selu),
    [ACTIVATION_MISH] = BOTH(each_mish),
    [ACTIVATION_SWISH] = BOTH(each_swish),
    [ACTIVATION_HARD_MISH] = BOTH(each_hard_mish),
    [ACTIVATION_GELU] = EITHER(gelu),
    [ACTIVATION_REVLEAKY] = EITHER(leaky),
    [ACTIVATION_LOGGY] = EITHER(loggy),
    [ACTIVATION_RELIE] = EITHER(relie),
    [ACTIVATION_RAMP] = EITHER(ramp),
    [ACTIVATION_PLSE] = EITHER(plse),
    [ACTIVATION_LHTAN] = EITHER(lhtan),
    [ACTIVATION_STAIR] = EITHER(stair),
    [ACTIVATION_HARDTAN] = BOTH(each_hardtan),
};
