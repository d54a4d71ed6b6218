/* The inner loops for any processor: vectors of four floats, which every compiler takes apart where there are none. */
#define LANES 4
#define VARIANT portable_variant
#define VARIANT_NAME "portable"
#include "tiles.h"
