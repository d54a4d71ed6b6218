/* What the layers of the CUDA library share. */
#ifndef DARKNETBN_CUDA_LAYERS_H
#define DARKNETBN_CUDA_LAYERS_H

#include "../gpu.h"

/* GPU_OK where the arrays that a layer of that name reads and writes are there; has_input: it reads the layer before. */
gpu_status check_layer(const layer *l, const gpu_arrays *a, const char *name, bool has_input = true);

/* output = input, (batch, outputs) */
cudaError_t copy_input(const layer *l, const gpu_arrays *a);

inline extent extent_of_output(const layer *l, const gpu_arrays *a) {
    return {a->batch, l->out_c, l->out_h * l->out_w};
}

#endif
