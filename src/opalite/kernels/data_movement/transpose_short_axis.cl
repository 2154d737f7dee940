// Transposes of a long axis with a short one of THIN elements, in each line of the AXES outer axes (data_movement/strided_copy_axes.cl):
//   zip_lines    THIN rows of x, `stride` apart, become one row of y whose elements take turns
//   unzip_lines  the reverse
// VEC steps along the long axis at a time, `each` times a work-item.  Moving elements through an array with constant
// indices lets the compiler choose the shuffles.
//   T                                  unsigned type of the element's size, or instead of it, to change the storage type:
//   SRC_T, DST_T, VALUE, LOAD1, STORE1 as in data_movement/layout_cast_blocks.cl
//   LOADP(p, i), STOREP(p, i, v)       VEC elements
#ifndef VEC
#define AXES 0
#define THIN 2
#define VEC 4
#define T uint
#define LOADP(p, i) vload4(0, (p) + (i))
#define STOREP(p, i, v) vstore4(v, 0, (p) + (i))
#endif
#ifdef T
#define SRC_T T
#define DST_T T
#define VALUE T
#define LOAD1(p, i) ((p)[i])
#define STORE1(p, i, v) ((p)[i] = (v))
#endif
#include "data_movement/strided_copy_axes.cl"
#define TV VEC_T(VALUE, VEC)
#define ALIGNED __attribute__((aligned(64)))

kernel void zip_lines(global const SRC_T *x, global DST_T *y, int steps, long stride, int each, int rows AXIS_PARAMS) {
    int i = get_global_id(0) * each * VEC;
    const int row = get_global_id(1), end = min(i + each * VEC, steps);
    if (row >= rows) return;
    long from = 0, to = 0;
    FIND_LINE(row)
    for (; i + VEC <= end; i += VEC) {
        VALUE zipped[THIN * VEC] ALIGNED;
#pragma unroll
        for (int b = 0; b < THIN; ++b) {
            VALUE lane[VEC] ALIGNED;
            *(TV *)lane = LOADP(x, from + b * stride + i);
#pragma unroll
            for (int k = 0; k < VEC; ++k) zipped[k * THIN + b] = lane[k];
        }
#pragma unroll
        for (int b = 0; b < THIN; ++b) STOREP(y, to + (long)i * THIN + b * VEC, *(TV *)(zipped + b * VEC));
    }
    for (; i < end; ++i) {
        for (int b = 0; b < THIN; ++b) STORE1(y, to + (long)i * THIN + b, LOAD1(x, from + b * stride + i));
    }
}

kernel void unzip_lines(global const SRC_T *x, global DST_T *y, int steps, long stride, int each, int rows AXIS_PARAMS) {
    int i = get_global_id(0) * each * VEC;
    const int row = get_global_id(1), end = min(i + each * VEC, steps);
    if (row >= rows) return;
    long from = 0, to = 0;
    FIND_LINE(row)
    for (; i + VEC <= end; i += VEC) {
        VALUE zipped[THIN * VEC] ALIGNED;
#pragma unroll
        for (int b = 0; b < THIN; ++b) *(TV *)(zipped + b * VEC) = LOADP(x, from + (long)i * THIN + b * VEC);
#pragma unroll
        for (int b = 0; b < THIN; ++b) {
            VALUE lane[VEC] ALIGNED;
#pragma unroll
            for (int k = 0; k < VEC; ++k) lane[k] = zipped[k * THIN + b];
            STOREP(y, to + b * stride + i, *(TV *)lane);
        }
    }
    for (; i < end; ++i) {
        for (int b = 0; b < THIN; ++b) STORE1(y, to + b * stride + i, LOAD1(x, from + (long)i * THIN + b));
    }
}
