/* Which inner loops run here: the widest that the processor has, unless set_cpu_variant() says otherwise. Every variant gives the same
 * bits. */
#include <stdatomic.h>
#include <string.h>

#include "../internal.h"
#include "variants.h"

static const variant *_Atomic chosen;

static int runs_here(const variant *v) {
    if (!v->name) return 0;
#if defined(__x86_64__)
    /* what __builtin_cpu_supports() finds, the system keeps across its threads too (xgetbv) */
    if (v == &avx512_variant)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma");
    if (v == &avx2_variant) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    return 1;
}

/* From the widest on */
static const variant *const variants[] = {&avx512_variant, &avx2_variant, &neon_variant, &portable_variant};
enum { VARIANTS = sizeof variants / sizeof *variants };

const variant *chosen_variant(void) {
    const variant *v = atomic_load(&chosen);
    for (size_t i = 0; !v && i < VARIANTS; ++i)
        if (runs_here(variants[i])) v = variants[i];
    atomic_store(&chosen, v);
    return v;
}

const char *cpu_variant(void) {
    return chosen_variant()->name;
}

const char *cpu_variant_at(size_t i) {
    for (size_t v = 0; v < VARIANTS; ++v)
        if (runs_here(variants[v]) && i-- == 0) return variants[v]->name;
    return NULL;
}

status set_cpu_variant(const char *name) {
    for (size_t i = 0; i < VARIANTS; ++i) {
        if (!runs_here(variants[i]) || strcmp(variants[i]->name, name) != 0) continue;
        atomic_store(&chosen, variants[i]);
        return STATUS_OK;
    }
    return fail(STATUS_UNSUPPORTED, "no inner loops named '%s' run on this processor", name);
}

int cpu_has(const char *feature) {
#if defined(__x86_64__)
    if (strcmp(feature, "sse2") == 0) return 1;
    if (strcmp(feature, "avx") == 0) return __builtin_cpu_supports("avx") != 0;
    if (strcmp(feature, "avx2") == 0) return __builtin_cpu_supports("avx2") != 0;
    if (strcmp(feature, "fma") == 0) return __builtin_cpu_supports("fma") != 0;
    if (strcmp(feature, "avx512f") == 0) return __builtin_cpu_supports("avx512f") != 0;
#elif defined(__aarch64__)
    if (strcmp(feature, "neon") == 0) return 1;
#endif
    (void)feature;
    return 0;
}
