/* What follows the sums of a layer: its batchnorm in inference, its bias and its activation. The formulas are those of the CPU's
 * kernels, with the package's own functions. */
#include "../../kernels/batchnorm_root.h"
#include "../../kernels/curves.h"
#include "../each.cuh"

namespace {

struct activate_value {
    extent e;
    activation a;
    precision p;
    const float *biases; /* or NULL */
    float *x;
    __device__ void operator()(size_t i) const {
        const elementary own = {};
        float v = biases ? x[i] + biases[i / e.spatial % e.c] : x[i];
        x[i] = activated(v, a, p, &own);
    }
};

struct activate_pixel {
    extent e;
    activation a;
    float *x;
    __device__ void operator()(size_t i) const {
        const elementary own = {};
        float *pixel = x + i / e.spatial * e.c * e.spatial + i % e.spatial;
        if (a == ACTIVATION_NORMALIZE_CHANNELS)
            share_positive(pixel, e.c, e.spatial);
        else
            share_exponentials(pixel, e.c, e.spatial, a == ACTIVATION_NORMALIZE_CHANNELS_SOFTMAX_MAXVAL, &own);
    }
};

struct normalize_value {
    extent e;
    epsilon_rule epsilon;
    precision intermediate;
    const float *x, *mean, *variance, *scales, *biases;
    float *output;
    __device__ void operator()(size_t i) const {
        size_t f = i / e.spatial % e.c;
        double root = batchnorm_root(variance[f], &epsilon, intermediate);
        output[i] = batchnorm_quotient(x[i], mean[f], root, intermediate) * scales[f] + biases[f];
    }
};

} // namespace

cudaError_t activate_gpu(float *x, extent e, activation a, const arithmetic_rule *rule, int host, const float *biases,
                         void *stream) {
    size_t n = e.batch * e.c * e.spatial;
    int over_channels = is_over_channels(a);
    activation single = over_channels ? ACTIVATION_LINEAR : a;
    cudaError_t error = cudaSuccess;
    if (biases || single != ACTIVATION_LINEAR)
        error = each(n, activate_value{e, single, precision_of_activation(single, rule, host), biases, x}, stream);
    if (error != cudaSuccess || !over_channels) return error;
    return each(e.batch * e.spatial, activate_pixel{e, a, x}, stream);
}

cudaError_t normalize_gpu(const float *x, extent e, const batchnorm_rule *rule, const gpu_arrays *a, float *output) {
    normalize_value f = {e,         rule->forward, rule->intermediate, x, a->rolling_mean, a->rolling_variance, a->scales,
                         a->biases, output};
    return each(e.batch * e.c * e.spatial, f, a->stream);
}
