// y's row r is row rows[r] of x, or zeros where that is negative. A row has `columns` elements of type T, of which a
// work-item copies SPAN, VEC at a time, in each of EACH rows.
//   T   an unsigned type of the element's size, or one of several elements to which rows are aligned
#ifndef T
#define T uint
#define VEC 4
#define SPAN 4
#define EACH 1
#define VLOADV(p) vload4(0, p)
#define VSTOREV(v, p) vstore4(v, 0, p)
#define ZEROS (uint4)(0)
#endif

kernel void move_rows(global const T *x, global const int *rows, global T *y, int columns, int count) {
    const int begin = get_global_id(0) * SPAN, end = min(begin + SPAN, columns);
    const int first = get_global_id(1) * EACH, last = min(first + EACH, count);
    for (int r = first; r < last; ++r) {
        const int from = rows[r];
        global T *to = y + (size_t)r * columns;
        int i = begin;
        if (from < 0) {
            for (; i + VEC <= end; i += VEC) VSTOREV(ZEROS, to + i);
            for (; i < end; ++i) to[i] = (T)(0);
            continue;
        }
        global const T *at = x + (size_t)from * columns;
        for (; i + VEC <= end; i += VEC) VSTOREV(VLOADV(at + i), to + i);
        for (; i < end; ++i) to[i] = at[i];
    }
}
