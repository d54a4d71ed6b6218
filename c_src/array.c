/* Float arrays with a count of their users in front of the first element. A view that Python holds stays readable when its layer
 * is freed or has moved on to a larger batch. */
#include "internal.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

enum { ALIGNMENT = 64 };

typedef struct {
    atomic_size_t users, retained;
    size_t size;
    void *block;
} header;

_Static_assert(sizeof(header) <= ALIGNMENT, "the header lies in the cache line before the array");

static header *header_of(const float *array) {
    return (header *)((char *)(uintptr_t)array - ALIGNMENT);
}

static _Thread_local size_t floats_left = SIZE_MAX;
static atomic_size_t held, peak; /* bytes of all arrays */

size_t arrays_held(void) {
    return atomic_load(&held);
}

size_t arrays_peak(void) {
    return atomic_load(&peak);
}

void reset_arrays_peak(void) {
    atomic_store(&peak, atomic_load(&held));
}

static void count_made(size_t bytes) {
    size_t now = atomic_fetch_add(&held, bytes) + bytes, most = atomic_load(&peak);
    while (now > most && !atomic_compare_exchange_weak(&peak, &most, now)) {}
}

void limit_arrays(size_t floats) {
    floats_left = floats;
}

/* Large pages for a large block, where the system has them for those who ask: a pass over it then waits less for page tables. */
static void ask_for_large_pages(char *block, size_t bytes) {
#if defined(MADV_HUGEPAGE)
    enum { PAGE = 4096, LARGE = 1 << 22 };
    size_t before = PAGE - (uintptr_t)block % PAGE;
    if (bytes >= LARGE) (void)madvise(block + before, (bytes - before) / PAGE * PAGE, MADV_HUGEPAGE);
#else
    (void)block, (void)bytes;
#endif
}

static float *make(size_t n, int zeros) {
    if (n > (SIZE_MAX / 2 - 2 * ALIGNMENT) / sizeof(float)) {
        fail(STATUS_OUT_OF_MEMORY, "an array of %zu floats is larger than the address space", n);
        return NULL;
    }
    if (n > floats_left) {
        fail(STATUS_OUT_OF_MEMORY, "an array of %zu bytes is more than the %zu that may still be taken", n * sizeof(float),
             floats_left * sizeof(float));
        return NULL;
    }
    size_t bytes = n * sizeof(float) + 2 * ALIGNMENT;
    char *block = zeros ? calloc(bytes, 1) : malloc(bytes); /* calloc: untouched zero pages cost nothing */
    if (!block) {
        fail(STATUS_OUT_OF_MEMORY, "no memory for an array of %zu floats", n);
        return NULL;
    }
    ask_for_large_pages(block, bytes);
    char *aligned = block + ALIGNMENT - (uintptr_t)block % ALIGNMENT;
    float *array = (float *)(void *)(aligned + ALIGNMENT);
    if (floats_left != SIZE_MAX) floats_left -= n;
    header *head = header_of(array);
    atomic_init(&head->users, 1);
    atomic_init(&head->retained, 0);
    head->size = n;
    head->block = block;
    count_made(n * sizeof(float));
    return array;
}

float *make_array(size_t n) {
    return make(n, 1);
}

float *make_dirty_array(size_t n) {
    return make(n, 0);
}

float *array_retain(float *array) {
    if (array) {
        atomic_fetch_add(&header_of(array)->users, 1);
        atomic_fetch_add(&header_of(array)->retained, 1);
    }
    return array;
}

void array_release(float *array) {
    if (!array) return;
    header *head = header_of(array);
    if (atomic_fetch_sub(&head->users, 1) > 1) return;
    atomic_fetch_sub(&held, head->size * sizeof(float));
    free(head->block);
}

size_t array_users(const float *array) {
    return array ? atomic_load(&header_of(array)->users) : 0;
}

size_t array_retained(const float *array) {
    return array ? atomic_load(&header_of(array)->retained) : 0;
}

size_t array_size(const float *array) {
    return array ? header_of(array)->size : 0;
}

status ensure_array(float **array, size_t n) {
    if (*array && array_size(*array) >= n) return STATUS_OK;
    float *made = make_array(n);
    if (!made) return STATUS_OUT_OF_MEMORY;
    array_release(*array);
    *array = made;
    return STATUS_OK;
}

int product(size_t *result, const size_t *factors, size_t n_factors) {
    size_t value = 1;
    for (size_t i = 0; i < n_factors; ++i) {
        if (factors[i] && value > SIZE_MAX / factors[i]) return 0;
        value *= factors[i];
    }
    *result = value;
    return 1;
}
