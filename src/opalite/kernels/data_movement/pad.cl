// y = x inside a border.  MODE 0 constant, 1 reflect, 2 edge, 3 wrap, 4 symmetric.  T is what moves: an unsigned type of the element's
// size, or a vector of PACK such elements where a channel block is one element; V is one lane of it.
// OUTER axes before the innermost come as arguments: extent of x, begin of the border, extent of y, stride of x.
// A work-item writes `each` elements of one row of `wide`; x has `columns` there and the border `begin` on the left.
#ifndef T
#define T uint
#define V uint
#define MODE 0
#define OUTER 0
#define VEC 4
#define LOAD_T(p) vload4(0, p)
#define STORE_T(v, p) vstore4(v, 0, p)
#endif
#define PAD_PARAMS_0
#define PAD_PARAMS_1 , int x_0, int b_0, int y_0, long s_0
#define PAD_PARAMS_2 PAD_PARAMS_1, int x_1, int b_1, int y_1, long s_1
#define PAD_PARAMS_3 PAD_PARAMS_2, int x_2, int b_2, int y_2, long s_2
#define PAD_PARAMS_4 PAD_PARAMS_3, int x_3, int b_3, int y_3, long s_3
#define PAD_PARAMS_5 PAD_PARAMS_4, int x_4, int b_4, int y_4, long s_4
#define PAD_PARAMS_6 PAD_PARAMS_5, int x_5, int b_5, int y_5, long s_5
#define PAD_PARAMS_7 PAD_PARAMS_6, int x_6, int b_6, int y_6, long s_6
#define PAD_PARAMS_8 PAD_PARAMS_7, int x_7, int b_7, int y_7, long s_7
#define PAD_STEP(a) { const int c = inner(rest % y_##a - b_##a, x_##a); rest /= y_##a; \
                      outside |= c < 0; from += (long)c * s_##a; }
#define PAD_STEPS_0
#define PAD_STEPS_1 PAD_STEP(0)
#define PAD_STEPS_2 PAD_STEP(1) PAD_STEPS_1
#define PAD_STEPS_3 PAD_STEP(2) PAD_STEPS_2
#define PAD_STEPS_4 PAD_STEP(3) PAD_STEPS_3
#define PAD_STEPS_5 PAD_STEP(4) PAD_STEPS_4
#define PAD_STEPS_6 PAD_STEP(5) PAD_STEPS_5
#define PAD_STEPS_7 PAD_STEP(6) PAD_STEPS_6
#define PAD_STEPS_8 PAD_STEP(7) PAD_STEPS_7

#include "include/pad_coordinates.cl"

// One element of the border.
#if MODE == 0
#define BORDER(i) fill
#else
#define BORDER(i) x[from + inner((i) - begin, columns)]
#endif

kernel void pad(global const T *x, global T *y, V value, int columns, int begin, int wide, int each,
                int rows CAT(PAD_PARAMS_, OUTER)) {
    const int row = get_global_id(1);
    int i = get_global_id(0) * each;
    const int last = min(i + each, wide);
    if (row >= rows || i >= wide) return;
    int rest = row;
    long from = 0;
    bool outside = false;
    CAT(PAD_STEPS_, OUTER)
    const T fill = (T)(value);
    y += (size_t)row * wide;
    if (outside) {
        for (; i < last; ++i) y[i] = fill;
        return;
    }
    const int left = clamp(begin, i, last), right = clamp(begin + columns, left, last);
    for (; i < left; ++i) y[i] = BORDER(i);
#if VEC > 1
    for (; i + VEC <= right; i += VEC) {
        STORE_T(LOAD_T(x + from + i - begin), y + i);
    }
#endif
    for (; i < right; ++i) y[i] = x[from + i - begin];
    for (; i < last; ++i) y[i] = BORDER(i);
}
