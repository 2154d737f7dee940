// y[y0 + sum(c * ys)] = x[x0 + sum(c * xs)] over axes of given extents: transposes, slices and the parts of a concat.
// T is an unsigned type of the element's size.  The AXES outer axes are those of data_movement/strided_copy_axes.cl; the inner one has `columns`
// elements with strides xs_in and ys_in.  CONTIGUOUS: both of these are 1 and vectors of VEC elements are copied.
#ifndef T
#define T uint
#define AXES 1
#define CONTIGUOUS 1
#define VEC 4
#define ITEMS 1
#define VLOADV(p) vload4(0, p)
#define VSTOREV(v, p) vstore4(v, 0, p)
#endif
#include "data_movement/strided_copy_axes.cl"

kernel void strided_copy(global const T *x, global T *y, long x0, long y0, int columns, long xs_in, long ys_in,
                         int rows AXIS_PARAMS) {
    const int row = get_global_id(1);
    int i = get_global_id(0) * (VEC * ITEMS);
    if (row >= rows || i >= columns) return;
    long from = x0, to = y0;
    FIND_LINE(row)
    const int end = min(i + VEC * ITEMS, columns);
#if CONTIGUOUS
    for (; i + VEC <= end; i += VEC) {
        VSTOREV(VLOADV(x + from + i), y + to + i);
    }
    for (; i < end; ++i) y[to + i] = x[from + i];
#else
    for (; i < end; ++i) y[to + i * ys_in] = x[from + i * xs_in];
#endif
}
