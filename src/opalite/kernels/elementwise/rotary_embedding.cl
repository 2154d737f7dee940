// y[b, h, s] = the row x[b, h, s] of two halves of `half_row` elements, pairs of which are rotated (ops/rotary_embedding.py). Rows of x
// begin at x_b * b + x_h * h + x_s * s, those of y at y_start + y_b * b + y_h * h + y_s * s, and those of cosines and sines
// at t_b * b + t_h * h + t_s * s; the second half's columns are `second` after the first's.
//   PAIRS  1 or PACK: a work-item rotates so many pairs, grid (ceil(half_row / PAIRS), B * H * S); PACK divides all that rows
//          and halves of them are apart; 0: all heads of a position, by vectors, grid (S, B)
#ifndef PAIRS
#define PAIRS 0
#endif
#include "include/common.cl"
#if PAIRS > 1
#include "include/aligned_blocks.cl"
#endif

kernel void rotate_rows(global const REAL *restrict x, global const REAL *restrict cosines,
                        global const REAL *restrict sines, global REAL *restrict y, int batches, int heads, int S,
                        int half_row, int second, int x_b, int x_h, int x_s, int t_b, int t_h, int t_s,
                        int y_start, int y_b, int y_h, int y_s) {
#if PAIRS
    const int d = get_global_id(0) * PAIRS, line = get_global_id(1), s = line % S, h = line / S % heads, b = line / S / heads;
    if (d >= half_row || b >= batches) return;
    x += (size_t)b * x_b + (size_t)h * x_h + (size_t)s * x_s;
    const size_t table = (size_t)b * t_b + (size_t)h * t_h + (size_t)s * t_s;
    y += y_start + (size_t)b * y_b + (size_t)h * y_h + (size_t)s * y_s;
    cosines += table;
    sines += table;
#if PAIRS > 1
    const ACCV low = LOADV(x, d), high = LOADV(x, d + half_row);
    STOREV(y, d, low * LOADV(cosines, d) - high * LOADV(sines, d));
    STOREV(y, d + half_row, high * LOADV(cosines, d + second) + low * LOADV(sines, d + second));
#else
    const ACC low = LOAD(x, d), high = LOAD(x, d + half_row);
    STORE(y, d, low * LOAD(cosines, d) - high * LOAD(sines, d));
    STORE(y, d + half_row, high * LOAD(cosines, d + second) + low * LOAD(sines, d + second));
#endif
#else
    const int s = get_global_id(0), b = get_global_id(1);
    if (s >= S || b >= batches) return;
    for (int h = 0; h < heads; ++h) {
        global const REAL *row = x + (size_t)b * x_b + (size_t)h * x_h + (size_t)s * x_s;
        const size_t table = (size_t)b * t_b + (size_t)h * t_h + (size_t)s * t_s;
        global const REAL *c = cosines + table, *n = sines + table;
        global REAL *out = y + y_start + (size_t)b * y_b + (size_t)h * y_h + (size_t)s * y_s;
        int d = 0;
        for (; d + PACK <= half_row; d += PACK) {
            const ACCV low = LOADV(row, d), high = LOADV(row, d + half_row);
            STOREV(out, d, low * LOADV(c, d) - high * LOADV(n, d));
            STOREV(out, d + half_row, high * LOADV(c, d + second) + low * LOADV(n, d + second));
        }
        for (; d < half_row; ++d) {
            const ACC low = LOAD(row, d), high = LOAD(row, d + half_row);
            STORE(out, d, low * LOAD(c, d) - high * LOAD(n, d));
            STORE(out, d + half_row, high * LOAD(c, d + second) + low * LOAD(n, d + second));
        }
    }
#endif
}
