// Several inputs of a Concat in one launch. In each of `lines` lines of `pitch` elements of y every input is one run.
// T is an unsigned type of the element's size, VEC elements a work-item. A generated prelude knows the inputs:
//   INPUTS         their parameters: x0, x1..., the lengths n0, n1... of their runs, and where in a line these start, s0, s1...
//   FIND_INPUT(k)  sets x, n and start for input number k
// Grid: longest run / VEC, lines, inputs.
#ifndef T
#define T uint
#define VEC 4
#define VLOADV(p) vload4(0, p)
#define VSTOREV(v, p) vstore4(v, 0, p)
#define INPUTS global const T *x0, int n0, long s0
#define FIND_INPUT(k) { x = x0; n = n0; start = s0; }
#endif

kernel void concat_runs(INPUTS, global T *y, long pitch, int lines) {
    const int line = get_global_id(1), k = get_global_id(2);
    int i = get_global_id(0) * VEC;
    global const T *x;
    int n;
    long start;
    FIND_INPUT(k)
    if (line >= lines || i >= n) return;
    x += (long)line * n;
    y += line * pitch + start;
    if (i + VEC <= n) {
        VSTOREV(VLOADV(x + i), y + i);
    } else {
        for (; i < n; ++i) y[i] = x[i];
    }
}
