/* The inner loops for x86-64 with AVX2. Compiled with -mavx2 for itself alone; elsewhere there is nothing of it but its name. */
#if defined(__AVX2__)
#define LANES 8
#define VARIANT avx2_variant
#define VARIANT_NAME "avx2"
#include "tiles.h"
#else
#include "variants.h"
const variant avx2_variant = {.name = NULL};
#endif
