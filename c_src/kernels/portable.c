/* The inner loops for any processor: vectors of four floats, which every compiler takes apart where there are none. */
#define LANES 4
#define ROWS 6
#include "tiles.h"

#include "activation_lanes.h"
#include "batchnorm_lanes.h"
#include "depthwise.h"

#include "batchnorm_planes.h"

const variant portable_variant = {"portable", ROWS,    STRIP,      pack,      multiply, depthwise,       LANES,
                                  sum,        squares, delta_sums, normalize, carry,    activation_loops};
