/* What a batchnorm divides by, and the quotient: one text for C and for CUDA. */
#ifndef DARKNETBN_BATCHNORM_ROOT_H
#define DARKNETBN_BATCHNORM_ROOT_H

#include <math.h>

#include "../rules.h"
#include "elementary.h"

/* sqrt(v + eps) or sqrt(v) + eps. precision double: the root is taken and the outer sum made in double, while a float literal
 * inside is added in float, as C promotes. precision float: all in float, as the float overloads of C++ do. */
INLINED double batchnorm_root(float v, const epsilon_rule *e, precision p) {
    float value = (float)e->value;
    if (p == PRECISION_FLOAT) return (double)(e->side == SIDE_INSIDE ? sqrtf(v + value) : sqrtf(v) + value);
    double wide = e->literal == LITERAL_FLOAT ? (double)value : e->value;
    if (e->side == SIDE_OUTSIDE) return sqrt((double)v) + wide;
    return e->literal == LITERAL_FLOAT ? sqrt((double)(v + value)) : sqrt((double)v + wide);
}

/* (x - mean) / root: the difference in float, the quotient in that type */
INLINED float batchnorm_quotient(float x, float mean, double root, precision p) {
    float off = x - mean;
    return p == PRECISION_FLOAT ? off / (float)root : (float)((double)off / root);
}

#endif
