/* A connected layer, in inference (c_src/layers/connected_layer.c): a convolution of images of one pixel. */
#include "../convolution.h"

gpu_status forward_connected_layer_gpu(const layer *l, const gpu_arrays *a) {
    convolution_shape s = {};
    s.c = l->inputs, s.n = l->outputs;
    s.h = s.w = s.out_h = s.out_w = s.size = s.stride_x = s.stride_y = s.dilation = 1;
    convolution_gpu v;
    gpu_status done = describe_convolution(&v, s, a->batch, 1);
    if (done == GPU_OK) done = check_arrays(l, a, "a connected layer");
    if (done != GPU_OK) return done;
    v.input = a->input, v.weights = a->weights, v.output = a->output;
    done = a->blas && !a->plain ? connect_blas_gpu(a->blas, v, (cudaStream_t)a->stream) : convolve_gpu(v, a, nullptr);
    return done == GPU_OK ? finish_sums(l, a, a->output, extent{a->batch, l->outputs, 1}, 0) : done;
}
