/* Which functions are in use, and those of the system. */
#include "elementary.h"

#include <stdatomic.h>

#include "../internal.h"

static float system_cubef(float x) {
    return powf(x, 3);
}

static double system_cube(double x) {
    return pow(x, 3);
}

static const elementary system_functions = {"system", expf, logf, tanhf, system_cubef, exp, tanh, system_cube};
static const elementary *const sets[] = {&own_functions, &system_functions};
static const elementary *_Atomic chosen = &own_functions;

const elementary *chosen_elementary(void) {
    return atomic_load(&chosen);
}

int uses_own_functions(void) {
    return chosen_elementary() == sets[0];
}

const char *libm_in_use(void) {
    return chosen_elementary()->name;
}

status set_libm(const char *name) {
    for (size_t i = 0; i < sizeof sets / sizeof *sets; ++i) {
        if (strcmp(sets[i]->name, name) != 0) continue;
        atomic_store(&chosen, sets[i]);
        return STATUS_OK;
    }
    return fail(STATUS_UNSUPPORTED, "no functions are named '%s', there are own and system", name);
}

void elementary_floats(elementary_function f, const float *x, size_t n, float *out) {
    const elementary *m = chosen_elementary();
    float (*const functions[])(float) = {m->expf, m->logf, m->tanhf, m->cubef};
    for (size_t i = 0; i < n; ++i) out[i] = functions[f](x[i]);
}

void elementary_doubles(elementary_function f, const double *x, size_t n, double *out) {
    const elementary *m = chosen_elementary();
    double (*const functions[])(double) = {m->exp, NULL, m->tanh, m->cube};
    for (size_t i = 0; functions[f] && i < n; ++i) out[i] = functions[f](x[i]);
}
