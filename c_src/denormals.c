/* Denormal floats: kept, unless the calling thread asks for zeros in their place.
 *
 * The processor has one switch for each thread, and other libraries set it too (a program linked with -ffast-math, say). So each call
 * sets it to what was asked of this package, on every thread that works for it, and sets it back. */
#include "internal.h"

#if defined(__SSE2__) || defined(_M_X64)
#include <xmmintrin.h>
enum { FLUSHING = 0x8040 }; /* results become 0, operands count as 0 */

static size_t read_mode(void) {
    return _mm_getcsr();
}

static void write_mode(size_t mode) {
    _mm_setcsr((unsigned)mode);
}
#elif defined(__aarch64__) && defined(__GNUC__)
enum { FLUSHING = 1 << 24 };

static size_t read_mode(void) {
    size_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
}

static void write_mode(size_t mode) {
    __asm__ volatile("msr fpcr, %0" : : "r"(mode));
}
#else
enum { FLUSHING = 0 }; /* no switch that this package knows */

static size_t read_mode(void) {
    return 0;
}

static void write_mode(size_t mode) {
    (void)mode;
}
#endif

static _Thread_local int flush;

int get_flush_denormals(void) {
    return flush;
}

status set_flush_denormals(int on) {
    if (on && !FLUSHING) return fail(STATUS_UNSUPPORTED, "this processor's denormal floats are kept");
    flush = on != 0;
    return STATUS_OK;
}

size_t enter_float_mode(int flushing) {
    size_t before = read_mode(), mode = flushing ? before | FLUSHING : before & ~(size_t)FLUSHING;
    if (mode != before) write_mode(mode); /* to write it is slower than to read it */
    return before;
}

void leave_float_mode(size_t before) {
    if (read_mode() != before) write_mode(before);
}
