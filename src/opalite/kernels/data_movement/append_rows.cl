// y[b, m, starts[b] + i, e] = x[b, m, i, e]: appends rows of `inner` elements at each batch entry's position. T is an
// unsigned type of the element's size. Rows that would be outside the `size` rows of y are dropped, or wrap around if
// CIRCULAR. Grid: (lines), the rows of x.
#ifndef T
#define T uint
#define CIRCULAR 0
#endif

kernel void append_rows(global const T *x, global const long *starts, global T *y, int lines, int middle, int count,
                        int size, int inner) {
    const int line = get_global_id(0);
    if (line >= lines) return;
    const int outer = line / count;
    long at = starts[outer / middle] + line % count;
#if CIRCULAR
    at %= size;
    if (at < 0) at += size;
#endif
    if (at < 0 || at >= size) return;
    x += (size_t)line * inner;
    y += ((size_t)outer * size + at) * inner;
    for (int e = 0; e < inner; ++e) y[e] = x[e];
}
