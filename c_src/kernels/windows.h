/* What a window covers of an image. */
#ifndef DARKNETBN_WINDOWS_H
#define DARKNETBN_WINDOWS_H

#include <stddef.h>

#include "inlined.h"

typedef struct {
    size_t begin, end;
} range;

/* What a window of that size covers of an image's rows or columns; first is its place with the padding. */
DARKNETBN_DEVICE range covered(size_t first, size_t size, size_t offset, size_t length) {
    size_t begin = first > offset ? first - offset : 0;
    size_t end = first + size > offset ? first + size - offset : 0;
    range r = {begin, end < length ? end : length};
    return r;
}

#endif
