// y[n, m] = sum over f of |x[n, f] - c[f, m]| ^ POWER, POWER 1 or 2. A work-item computes ROWS rows of PACK adjacent columns.
// Grid: ceil(columns / PACK), ceil(rows / ROWS).
#if POWER == 2
#define ADD(sum, d) ((sum) + (d) * (d))
#else
#define ADD(sum, d) ((sum) + fabs(d))
#endif

kernel void distance_tile(global const REAL *restrict x, global const REAL *restrict c, global REAL *restrict y, int rows,
                          int features, int columns) {
    const int m = get_global_id(0) * PACK, n = get_global_id(1) * ROWS;
    if (m >= columns || n >= rows) return;
    global const REAL *line[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) line[r] = x + (size_t)min(n + r, rows - 1) * features;
#if PACK > 1
    if (m + PACK <= columns) {
        ACCV sum[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) sum[r] = (ACCV)0;
        for (int f = 0; f < features; ++f) {
            const ACCV point = LOADV(c, (size_t)f * columns + m);
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                const ACCV d = LOAD(line[r], f) - point;
                sum[r] = ADD(sum[r], d);
            }
        }
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            if (n + r < rows) STOREV(y, (size_t)(n + r) * columns + m, sum[r]);
        }
        return;
    }
#endif
    for (int k = m; k < min(m + PACK, columns); ++k) {
        for (int r = 0; r < ROWS && n + r < rows; ++r) {
            ACC sum = 0;
            for (int f = 0; f < features; ++f) {
                const ACC d = LOAD(line[r], f) - LOAD(c, (size_t)f * columns + k);
                sum = ADD(sum, d);
            }
            STORE(y, (size_t)(n + r) * columns + k, sum);
        }
    }
}
