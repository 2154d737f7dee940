// y[o] = the elements of a window of x, joined: pooling, and reductions, whose windows are whole axes.
// Outputs have four axes and windows three, of which window axis a moves along output axis a + 1. An element counts where
// its coordinate o * move - pad + t * gap is in 0..size, and for the mean if it is in from..to.
//   o0..o3 extents of y, s0..s3 steps in x from x0 on      k1..k3 extents of the window, w1..w3 steps in x
//   join     0 sum, 1 maximum and 2 minimum (a NaN wins), 3 product, 4 maximum (any number is larger than NaN)
//   change   of each element first: 0 none, 1 absolute value, 2 square
//   finish   of the result: 0 none, 1 divided by what was counted, 2 square root, 3 logarithm
// Grid: stretches of SPAN outputs along the last axis, and rows of these.
#include "include/no_inline.cl"
#ifndef SPAN
#define SPAN 16
#endif
#define BLOCK 64 // elements that are summed one after the other before their total joins the others', to stay accurate
#define AXIS(a) int o##a, long s##a, int k##a, long w##a, int move##a, int pad##a, int gap##a, int size##a, int from##a, int to##a
#define AXIS_NAMES(a) o##a, s##a, k##a, w##a, move##a, pad##a, gap##a, size##a, from##a, to##a

static inline float joined(float a, float b, int join) {
    if (join == 0) return a + b;
    if (join == 1) return b > a || b != b ? b : a;
    if (join == 2) return b < a || b != b ? b : a;
    if (join == 3) return a * b;
    return b > a || a != a ? b : a;
}

#define PARAMETERS \
    global const float *x, global float *y, long x0, int rows, int o0, long s0, AXIS(1), AXIS(2), AXIS(3), \
    int join, int change, int finish, float start, float low, float high
#define ARGUMENTS \
    x, y, x0, rows, o0, s0, AXIS_NAMES(1), AXIS_NAMES(2), AXIS_NAMES(3), join, change, finish, start, low, high

static void compute_windows(int item, int row, PARAMETERS) {
    COMPILED_ONCE(rows)
    const int begin = item * SPAN;
    if (begin >= o3 || row >= rows) return;
    const int q1 = row / o2, c2 = row - q1 * o2, c0 = q1 / o1, c1 = q1 - c0 * o1;
    const int z1 = c1 * move1 - pad1, z2 = c2 * move2 - pad2;
    for (int c3 = begin; c3 < min(begin + SPAN, o3); ++c3) {
        const int z3 = c3 * move3 - pad3;
        const long at = x0 + c0 * s0 + c1 * s1 + c2 * s2 + c3 * s3;
        float total = start;
        int count = 0, met = 0;
        for (int t1 = 0; t1 < k1; ++t1) {
            const int i1 = z1 + t1 * gap1;
            for (int t2 = 0; t2 < k2; ++t2) {
                const int i2 = z2 + t2 * gap2;
                const int inside = i1 >= 0 && i1 < size1 && i2 >= 0 && i2 < size2;
                const int counts = i1 >= from1 && i1 < to1 && i2 >= from2 && i2 < to2;
                for (int t = 0; t < k3; t += BLOCK) {
                    float part = start;
                    int found = met;
                    #pragma nounroll
                    for (int t3 = t; t3 < min(t + BLOCK, k3); ++t3) {
                        const int i3 = z3 + t3 * gap3;
                        count += counts && i3 >= from3 && i3 < to3;
                        if (inside && i3 >= 0 && i3 < size3) {
                            float v = x[at + t1 * w1 + t2 * w2 + t3 * w3];
                            v = change == 1 ? fabs(v) : change == 2 ? v * v : v;
                            part = found == met && join == 4 ? v : joined(part, v, join);
                            ++found;
                        }
                    }
                    if (found > met) total = met == 0 && join == 4 ? part : joined(total, part, join);
                    met = found;
                }
            }
        }
        if (finish == 1) total /= (float)max(count, 1);
        if (finish == 2) total = sqrt(total);
        if (finish == 3) total = log(total);
        total = total < low ? low : total;
        y[(long)row * o3 + c3] = total > high ? high : total;
    }
}

kernel void windows(PARAMETERS) {
    compute_windows(get_global_id(0), get_global_id(1), ARGUMENTS);
}
