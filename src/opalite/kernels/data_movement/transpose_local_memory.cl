// y[to + i * ys_a + j] = x[from + i + j * xs_b] for i < a and j < b, in each line of the AXES outer axes (data_movement/strided_copy_axes.cl):
// a work-group of 32 x ROWS turns a square of 32 x 32 in local memory, so that reads and writes are both in order.
// T is an unsigned type of the element's size.  The spare column keeps a column's elements in different banks.
#ifndef T
#define T uint
#define AXES 0
#define ROWS 8
#endif
#include "data_movement/strided_copy_axes.cl"

kernel void transpose_local(global const T *x, global T *y, int a, int b, long xs_b, long ys_a AXIS_PARAMS) {
    local T square[32][33];
    const int i0 = get_group_id(0) * 32, j0 = get_group_id(1) * 32;
    const int lane = get_local_id(0), line = get_local_id(1);
    long from = 0, to = 0;
    FIND_LINE(get_global_id(2))
    for (int k = line; k < 32; k += ROWS) {
        if (i0 + lane < a && j0 + k < b) square[k][lane] = x[from + i0 + lane + (j0 + k) * xs_b];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = line; k < 32; k += ROWS) {
        if (i0 + k < a && j0 + lane < b) y[to + (i0 + k) * ys_a + j0 + lane] = square[lane][k];
    }
}
