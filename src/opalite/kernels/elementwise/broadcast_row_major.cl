// y = expr(x0, x1, ...) on row-major tensors with broadcasting.  Rows run over the outer axes, columns over the innermost.
// Generated in front: EW_PARAMS (pointers, extents, strides), EW_ROW (offsets of a row), EW_VECTOR(i) and EW_SCALAR(i).
#ifndef EW_PARAMS
#define EW_PARAMS global const float *x0, global float *y,
#define EW_ROW(row) const size_t o0 = (size_t)(row) * columns, oy = o0;
#define EW_VECTOR(i) vstore4(vload4(0, x0 + o0 + i), 0, y + oy + i);
#define EW_SCALAR(i) y[oy + i] = x0[o0 + i];
#define VEC 4
#define ITEMS 1
#endif

kernel void elementwise_flat(EW_PARAMS int columns, int rows) {
    const int row = get_global_id(1);
    int i = get_global_id(0) * (VEC * ITEMS);
    if (row >= rows || i >= columns) return;
    EW_ROW(row)
    const int end = min(i + VEC * ITEMS, columns);
    for (; i + VEC <= end; i += VEC) {
        EW_VECTOR(i)
    }
#if VEC > 1
    for (; i < end; ++i) {
        EW_SCALAR(i)
    }
#endif
}
