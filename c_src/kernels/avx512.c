/* The inner loops for x86-64 with AVX-512. Compiled with its flags for itself alone; elsewhere there is nothing of it but its name.
 *
 * On a processor that takes a vector of 16 in two halves (Zen 4), it is the convolutions that gain: a product reads its weight from
 * the memory to all lanes, and 32 registers hold a tile whose sums hide what is around them. Batch normalization is bound by memory
 * and by sums that wait for each other, so its vectors have 8. */
#if defined(__AVX512F__)
#define LANES 8
#define TILE_LANES 16
#define ROWS 12
#include "tiles.h"

#include "activation_lanes.h"
#include "batchnorm_lanes.h"
#include "depthwise.h"

#include "batchnorm_planes.h"

const variant avx512_variant = {"avx512", ROWS,    STRIP,      pack,      multiply, depthwise,       LANES,
                                sum,      squares, delta_sums, normalize, carry,    activation_loops};
#else
#include "variants.h"
const variant avx512_variant = {.name = NULL};
#endif
