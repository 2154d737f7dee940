// The second launch of products whose work-groups share the terms of a sum: adds up the sums of PARTS parts, by vectors of PACK
// columns; needs PACK | N.
#include "include/partial_sums.cl"

// parts: [PARTS, rows, N]. Grid: N / PACK, rows.
kernel void matmul_parts(global const ACC *restrict parts, global REAL *restrict y, int rows, int N EPILOGUE_PARAMS) {
    const int n = get_global_id(0) * PACK, r = get_global_id(1);
    if (n >= N || r >= rows) return;
    const size_t at = (size_t)r * N + n;
    ACCV sum = LOAD_SUM(parts + at);
    _Pragma("unroll")
    for (int p = 1; p < PARTS; ++p) sum += LOAD_SUM(parts + (size_t)p * rows * N + at);
    const ACCV out = EPILOGUE(sum, r, n, rows, N);
    STOREV(y, at, out);
}
