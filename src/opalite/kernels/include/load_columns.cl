// Loading adjacent columns of a row, for kernels that slide windows. The file that includes this one defines before
// it
//   COLUMNS       how many columns are loaded            COLUMN_STEP   their distance
//   COLUMN_LANES  elements of a column (default PACK)    OUTSIDE       value of a column outside the row (default 0)
#ifndef COLUMN_LANES
#define COLUMN_LANES PACK
#define LOAD_COLUMN LOADV
#else
#define LOAD_COLUMN(p, i) LOADN(COLUMN_LANES, p, i)
#endif
#define COLUMN VEC_T(ACC, COLUMN_LANES)
#ifndef OUTSIDE
#define OUTSIDE ((COLUMN)0)
#endif

// Columns start, start + COLUMN_STEP... of the row of iw columns that begins at element `line` of x. A run that is
// inside the row is loaded without checks.
static inline void load_columns(COLUMN *v, global const REAL *restrict x, size_t line, int start, int iw) {
    if (start >= 0 && start + (COLUMNS - 1) * COLUMN_STEP < iw) {
        x += line + (size_t)start * COLUMN_LANES;
        #pragma unroll
        for (int t = 0; t < COLUMNS; ++t) v[t] = LOAD_COLUMN(x, t * (COLUMN_STEP * COLUMN_LANES));
    } else {
        #pragma unroll
        for (int t = 0; t < COLUMNS; ++t) {
            const int ix = start + t * COLUMN_STEP;
            v[t] = OUTSIDE;
            if (ix >= 0 && ix < iw) v[t] = LOAD_COLUMN(x, line + (size_t)ix * COLUMN_LANES);
        }
    }
}
