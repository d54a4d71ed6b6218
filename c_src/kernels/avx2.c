/* The inner loops for x86-64 with AVX2 and FMA. Compiled with -mavx2 -mfma for itself alone; elsewhere there is nothing of it but its
 * name. Only batchnorm_vectors.h fuses, by name: contraction is off here as everywhere. */
#if defined(__AVX2__)
#define LANES 8
#define ROWS 6
#include "tiles.h"

#include "activation_lanes.h"
#include "batchnorm_lanes.h"
#include "depthwise.h"

#include "batchnorm_planes.h"

const variant avx2_variant = {"avx2", ROWS,    STRIP,      pack,      multiply, depthwise,       LANES,
                              sum,    squares, delta_sums, normalize, carry,    activation_loops};
#else
#include "variants.h"
const variant avx2_variant = {.name = NULL};
#endif
