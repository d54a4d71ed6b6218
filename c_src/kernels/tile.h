/* Tiles of one width. Included by tiles.h for each, which sets NAME, VECTOR and COLUMNS, vectors of a strip, 1 or 2. */
#define JOINED(a, b) a##b
#define NAMED(a, b) JOINED(a, b)
#define BODY NAMED(NAME, _of)
#define AT(from) (*(NAMED(loose_, VECTOR) *)(from))
#define GET(from) (*(const NAMED(loose_, VECTOR) *)(from))
enum { NAMED(NAME, _lanes) = sizeof(VECTOR) / sizeof(float) };
#define STEP_OF_COLUMN NAMED(NAME, _lanes)

/* Sums of so many rows, held in registers, go on over depth products each. */
static inline __attribute__((always_inline)) void BODY(const place *whole, size_t rows) {
    const place p = *whole;
    VECTOR sums[ROWS][2] = {0};
    if (p.go_on) {
        ALL_ROWS
        for (size_t i = 0; i < rows; ++i) {
            sums[i][0] = GET(p.output + i * p.output_step);
            if (COLUMNS > 1) sums[i][1] = GET(p.output + i * p.output_step + STEP_OF_COLUMN);
        }
    }
    const float *strip = p.strip;
    for (size_t k = 0; k < p.depth; ++k, strip += COLUMNS * STEP_OF_COLUMN) {
        VECTOR left = GET(strip), right = left;
        if (COLUMNS > 1) right = GET(strip + STEP_OF_COLUMN);
        ALL_ROWS
        for (size_t i = 0; i < rows; ++i) {
            sums[i][0] += TIMES(p.weights + i * p.weights_step + k, left);
            if (COLUMNS > 1) sums[i][1] += TIMES(p.weights + i * p.weights_step + k, right);
        }
    }
    ALL_ROWS
    for (size_t i = 0; i < rows; ++i) {
        AT(p.output + i * p.output_step) = sums[i][0];
        if (COLUMNS > 1) AT(p.output + i * p.output_step + STEP_OF_COLUMN) = sums[i][1];
    }
}

static void NAME(const place *p, size_t rows) {
    switch (rows) {
        case 1: BODY(p, 1); break;
        case 2: BODY(p, 2); break;
        case 3: BODY(p, 3); break;
        case 4: BODY(p, 4); break;
        case 5: BODY(p, 5); break;
#if ROWS > 6
        case 6: BODY(p, 6); break;
        case 7: BODY(p, 7); break;
        case 8: BODY(p, 8); break;
        case 9: BODY(p, 9); break;
        case 10: BODY(p, 10); break;
        case 11: BODY(p, 11); break;
#endif
        default: BODY(p, ROWS); break;
    }
}

#undef JOINED
#undef NAMED
#undef BODY
#undef AT
#undef GET
#undef STEP_OF_COLUMN
#undef NAME
#undef VECTOR
#undef COLUMNS
