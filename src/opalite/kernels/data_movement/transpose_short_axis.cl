// Transposes of a long axis with a short one of THIN elements, in each line of the AXES outer axes (data_movement/strided_copy_axes.cl):
//   zip_lines    THIN rows of x, `stride` apart, become one row of y whose elements take turns
//   unzip_lines  the reverse
// VEC steps along the long axis at a time, `each` times a work-item; T is an unsigned type of the element's size.  Moving
// elements through an array with constant indices lets the compiler choose the shuffles.
#ifndef T
#define T uint
#define AXES 0
#define THIN 2
#define VEC 4
#define LOAD_T(p) vload4(0, p)
#define STORE_T(v, p) vstore4(v, 0, p)
#endif
#include "data_movement/strided_copy_axes.cl"
#define TV VEC_T(T, VEC)
#define ALIGNED __attribute__((aligned(64)))

kernel void zip_lines(global const T *x, global T *y, int steps, long stride, int each, int rows AXIS_PARAMS) {
    int i = get_global_id(0) * each * VEC;
    const int row = get_global_id(1), end = min(i + each * VEC, steps);
    if (row >= rows) return;
    long from = 0, to = 0;
    FIND_LINE(row)
    for (; i + VEC <= end; i += VEC) {
        T zipped[THIN * VEC] ALIGNED;
#pragma unroll
        for (int b = 0; b < THIN; ++b) {
            T lane[VEC] ALIGNED;
            *(TV *)lane = LOAD_T(x + from + b * stride + i);
#pragma unroll
            for (int k = 0; k < VEC; ++k) zipped[k * THIN + b] = lane[k];
        }
#pragma unroll
        for (int b = 0; b < THIN; ++b) STORE_T(*(TV *)(zipped + b * VEC), y + to + (long)i * THIN + b * VEC);
    }
    for (; i < end; ++i) {
        for (int b = 0; b < THIN; ++b) y[to + (long)i * THIN + b] = x[from + b * stride + i];
    }
}

kernel void unzip_lines(global const T *x, global T *y, int steps, long stride, int each, int rows AXIS_PARAMS) {
    int i = get_global_id(0) * each * VEC;
    const int row = get_global_id(1), end = min(i + each * VEC, steps);
    if (row >= rows) return;
    long from = 0, to = 0;
    FIND_LINE(row)
    for (; i + VEC <= end; i += VEC) {
        T zipped[THIN * VEC] ALIGNED;
#pragma unroll
        for (int b = 0; b < THIN; ++b) *(TV *)(zipped + b * VEC) = LOAD_T(x + from + (long)i * THIN + b * VEC);
#pragma unroll
        for (int b = 0; b < THIN; ++b) {
            T lane[VEC] ALIGNED;
#pragma unroll
            for (int k = 0; k < VEC; ++k) lane[k] = zipped[k * THIN + b];
            STORE_T(*(TV *)lane, y + to + b * stride + i);
        }
    }
    for (; i < end; ++i) {
        for (int b = 0; b < THIN; ++b) y[to + b * stride + i] = x[from + (long)i * THIN + b];
    }
}
