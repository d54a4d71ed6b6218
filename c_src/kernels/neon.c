/* The inner loops for AArch64, whose 32 registers hold a larger tile than any processor's; elsewhere there is nothing of it but its
 * name. */
#if defined(__aarch64__)
#define LANES 4
#define ROWS 12
#include "tiles.h"

#include "activation_lanes.h"
#include "batchnorm_lanes.h"
#include "depthwise.h"

#include "batchnorm_planes.h"

const variant neon_variant = {"neon", ROWS,    STRIP,      pack,      multiply, depthwise,       LANES,
                              sum,    squares, delta_sums, normalize, carry,    activation_loops};
#else
#include "variants.h"
const variant neon_variant = {.name = NULL};
#endif
