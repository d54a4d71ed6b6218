/* Which loops a rule takes: those of the profiles are fast, a rule of none is left to the plain ones. */
#include "../internal.h"
#include "device_batchnorm.h"

static int is_serial(const batchnorm_rule *rule) {
    return rule->summation == SUMMATION_SERIAL && rule->moments == MOMENTS_RECIPROCAL && rule->squares == PRECISION_DOUBLE &&
           rule->quotients == PRECISION_DOUBLE && rule->products == PRECISION_DOUBLE;
}

static int is_double(const batchnorm_rule *rule) {
    return rule->summation == SUMMATION_DOUBLE && rule->quotients == PRECISION_DOUBLE && rule->products == PRECISION_DOUBLE;
}

static void squares_of_channels(void *context, size_t begin, size_t end, size_t thread) {
    (void)thread;
    for (size_t f = begin; f < end; ++f) batchnorm_moments_of_squares(context, f);
}

void batchnorm_train(const batchnorm_pass *p) {
    if (p->rule->variance_formula == VARIANCE_FORMULA_SQUARES) {
        batchnorm_pass pass = *p;
        parallel_for(p->c, p->batch * p->spatial * 8, squares_of_channels, &pass);
        batchnorm_infer(p);
    } else if (is_serial(p->rule))
        batchnorm_train_serial(p);
    else if (is_double(p->rule))
        batchnorm_train_double(p);
    else if (device_computes(p->rule))
        batchnorm_train_strided(p);
    else
        batchnorm_train_plain(p);
}

void batchnorm_backward(const batchnorm_pass *p) {
    if (is_serial(p->rule))
        batchnorm_backward_serial(p);
    else if (is_double(p->rule))
        batchnorm_backward_double(p);
    else if (device_computes(p->rule))
        batchnorm_backward_strided(p);
    else
        batchnorm_backward_plain(p);
}
