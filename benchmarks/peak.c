/* The most additions and multiplications that this processor does in a second, in registers alone.
   Compiled twice: with -ffp-contract=off each step is two instructions, with -ffp-contract=fast one. */
typedef float lanes __attribute__((vector_size(32)));

#define EACH(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11)
#define START(I) lanes s##I = start + I;
#define STEP(I) s##I = s##I * factor + summand;
#define SUM(I) +s##I

/* rounds x 12 x 8 multiplications and as many additions; the sum keeps the compiler from leaving them out. */
float peak(long rounds, float given) {
    lanes start = {given, given, given, given, given, given, given, given};
    lanes factor = start * 0.5F, summand = start * 0.25F;
    EACH(START)
    for (long i = 0; i < rounds; ++i) {
        EACH(STEP)
    }
    lanes sum = start EACH(SUM);
    return sum[0] + sum[7];
}
