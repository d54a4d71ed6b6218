/* The inner loops for x86-64 with AVX2. Compiled with -mavx2 for itself alone; elsewhere there is nothing of it but its name. */
#if defined(__AVX2__)
#define LANES 8
#define ROWS 6
#include "tiles.h"

#include "activation_lanes.h"
#include "batchnorm_lanes.h"
#include "depthwise.h"

#include "batchnorm_planes.h"

const variant avx2_variant = {"avx2", ROWS,    STRIP,      pack,      multiply, depthwise,
                              sum,    squares, delta_sums, normalize, carry,    activation_loops};
#else
#include "variants.h"
const variant avx2_variant = {.name = NULL};
#endif
