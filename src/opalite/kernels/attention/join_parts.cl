// Combines the results of PARTS parts of the keys for query s of a head: y. A part's results are the largest score, the sum of
// the exponentials of scores less that, and the sum of values weighted by them; only the first `used` parts have any. Grid: (S * JOIN, H, B), groups of JOIN work-items.
#include "attention/blind_rows.cl"
#ifndef JOIN
#define JOIN 32
#define PARTS 2
#define DV 64
#endif
__attribute__((reqd_work_group_size(JOIN, 1, 1)))
kernel void join_split(global const ACC *restrict left, global REAL *restrict y, int batches, int heads, int S, int columns,
                       PLACE_OF(y), int used) {
    const int s = get_group_id(0), h = get_group_id(1), b = get_group_id(2);
    left += (((size_t)b * heads + h) * S + s) * PARTS * (DV + 2);
    ACC largest = -INFINITY, total = 0, share[PARTS];
    #pragma unroll
    for (int i = 0; i < PARTS; ++i) share[i] = i < used ? left[i * (DV + 2)] : -INFINITY;
    #pragma unroll
    for (int i = 0; i < PARTS; ++i) largest = fmax(largest, share[i]);
    #pragma unroll
    for (int i = 0; i < PARTS; ++i) {
        share[i] = share[i] == (ACC)(-INFINITY) ? (ACC)0 : exp(share[i] - largest);
        const ACC own = i < used ? left[i * (DV + 2) + 1] : (ACC)0;
        total += own * (isnan(own) ? (ACC)1 : share[i]);  // a NaN score of a part is propagated
    }
    const ACC factor = total == (ACC)0 && !BLIND_NAN ? (ACC)0 : (ACC)1 / total;
    y = HEAD(y, b, h) + (size_t)s * y_s;
    for (int c = get_local_id(0); c < DV; c += JOIN) {
        ACC sum = 0;
        #pragma unroll
        for (int i = 0; i < PARTS; ++i) sum += i < used ? left[i * (DV + 2) + 2 + c] * share[i] : (ACC)0;
        STORE(y, c, IS_ZERO(total) ? (ACC)0 : sum * factor);
    }
}
