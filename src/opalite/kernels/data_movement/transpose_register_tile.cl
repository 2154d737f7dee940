// y[to + i * ys_a + j] = x[from + i + j * xs_b] for i < a and j < b, in each line of the AXES outer axes (data_movement/strided_copy_axes.cl):
// squares of TILE x TILE elements are turned in registers.  Needs a >= TILE and b >= TILE unless NARROW; T is an unsigned
// type of the element's size, TILE_V the type that holds TILE of them in registers.
// A work-item turns `each` squares along j.  Squares at an edge move back and overlap their neighbours.
#ifndef T
#define T uint
#define AXES 0
#define TILE 4
#define TILE_V uint4
#define LOAD_TILE(p) vload4(0, p)
#define STORE_TILE(v, p) vstore4(v, 0, p)
#endif
#ifndef NARROW
#define NARROW 0
#endif
#include "data_movement/strided_copy_axes.cl"
#include "include/tile_transpose.cl"

kernel void transpose_tile_copy(global const T *x, global T *y, int a, int b, long xs_b, long ys_a, int each,
                                int rows AXIS_PARAMS) {
    const int first = get_global_id(0) * each * TILE, last = min(first + each * TILE, b);
    const int i = min((int)get_global_id(1) * TILE, a - TILE);
    const int row = get_global_id(2);
    if (first >= b || row >= rows) return;
#if NARROW
    if (a < TILE || b < TILE) {
        long from = 0, to = 0;
        FIND_LINE(row)
        const int begin = get_global_id(1) * TILE, end = min(begin + TILE, a);
        for (int j = first; j < last; ++j)
            for (int k = begin; k < end; ++k) y[to + k * ys_a + j] = x[from + k + j * xs_b];
        return;
    }
#endif
    long from = i, to = i * ys_a;
    FIND_LINE(row)
    for (int step = first; step < last; step += TILE) {
        const int j = min(step, b - TILE);
        TILE_V v[TILE];
#pragma unroll
        for (int k = 0; k < TILE; ++k) v[k] = LOAD_TILE(x + from + (j + k) * xs_b);
        transpose_tile(v);
#pragma unroll
        for (int k = 0; k < TILE; ++k) STORE_TILE(v[k], y + to + k * ys_a + j);
    }
}
