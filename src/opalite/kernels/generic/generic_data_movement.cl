// y[y0 + sum(c * ys)] = x[x0 + sum(q * xs)] along six axes, where q = (c - begin) / gap of each axis: transposes, slices, the
// parts of a concatenation, padding, zeros between elements, and elements that are repeated.  Where q is no whole number,
// `fill` is written; where it is not in 0..size, `mode` says what: 0 fill, 1 reflected, 2 the nearest element, 3 from the
// other end, 4 reflected with the outermost elements.  In mode 5 each element is repeated `gap` times instead.
// `bytes` of an element: 1, 2, 4 or 8.  Grid: stretches of `span` elements along the last axis, and groups of `lines` rows of these.
#include "include/no_inline.cl"
#define AXIS(a) int e##a, long xs##a, long ys##a, int begin##a, int gap##a, int size##a
#define OUTER 5 // axes but for the last
#define AXIS_NAMES(a) e##a, xs##a, ys##a, begin##a, gap##a, size##a

// The element at position c of a padded axis; -1 for none.
static inline int source(int c, int gap, int size, int mode) {
    if (mode == 5) return c / gap;
    if (gap > 1) return c >= 0 && c % gap == 0 && c / gap < size ? c / gap : -1;
    if (c >= 0 && c < size) return c;
    if (mode == 2) return c < 0 ? 0 : size - 1;
    if (mode == 3) return ((c % size) + size) % size;
    if (mode == 1) {
        const int turn = max(2 * (size - 1), 1), left = ((c % turn) + turn) % turn;
        return min(left, turn - left);
    }
    if (mode == 4) {
        const int turn = 2 * size, left = ((c % turn) + turn) % turn;
        return min(left, turn - 1 - left);
    }
    return -1;
}

#define PARAMETERS \
    global const uchar *x, global uchar *y, long x0, long y0, int rows, int bytes, int mode, ulong fill, int span, int lines, \
    AXIS(0), AXIS(1), AXIS(2), AXIS(3), AXIS(4), AXIS(5)
#define ARGUMENTS \
    x, y, x0, y0, rows, bytes, mode, fill, span, lines, AXIS_NAMES(0), AXIS_NAMES(1), AXIS_NAMES(2), AXIS_NAMES(3), AXIS_NAMES(4), \
    AXIS_NAMES(5)

static inline void move_span(int first, int row, PARAMETERS) {
    const int extent[OUTER] = {e0, e1, e2, e3, e4}, begin[OUTER] = {begin0, begin1, begin2, begin3, begin4};
    const int gap[OUTER] = {gap0, gap1, gap2, gap3, gap4}, size[OUTER] = {size0, size1, size2, size3, size4};
    const long x_step[OUTER] = {xs0, xs1, xs2, xs3, xs4}, y_step[OUTER] = {ys0, ys1, ys2, ys3, ys4};
    int rest = row, inside = 1;
    long from = x0, to = y0;
    #pragma nounroll
    for (int a = OUTER - 1; a >= 0; --a) {
        const int next = rest / extent[a], c = rest - next * extent[a];
        const int q = source(c - begin[a], gap[a], size[a], mode);
        inside &= q >= 0;
        from += q * x_step[a];
        to += c * y_step[a];
        rest = next;
    }
    const int last = min(first + span, e5);
    int c = first;
    if (inside && bytes == 4) {
        global const uint *words = (global const uint *)x + from;
        global uint *out = (global uint *)y + to;
        if (mode == 5) {
            int q = first / gap5, times = first - q * gap5;
            #pragma nounroll
            for (; c < last; ++c) {
                out[c * ys5] = words[q * xs5];
                if (++times == gap5) {
                    times = 0;
                    ++q;
                }
            }
        } else if (gap5 == 1 && first >= begin5 && last - begin5 <= size5) {
            #pragma nounroll
            for (; xs5 == 1 && ys5 == 1 && c + PACK <= last; c += PACK)
                STOREV((global float *)out, c, LOADV((global const float *)words, c - begin5));
            #pragma nounroll
            for (; c < last; ++c) out[c * ys5] = words[(c - begin5) * xs5];
        }
    }
    #pragma nounroll
    for (; c < last; ++c) {
        const int q = inside ? source(c - begin5, gap5, size5, mode) : -1;
        const long i = from + q * xs5, o = to + c * ys5;
        if (bytes == 4) ((global uint *)y)[o] = q < 0 ? (uint)fill : ((global const uint *)x)[i];
        else if (bytes == 8) ((global ulong *)y)[o] = q < 0 ? fill : ((global const ulong *)x)[i];
        else if (bytes == 2) ((global ushort *)y)[o] = q < 0 ? (ushort)fill : ((global const ushort *)x)[i];
        else y[o] = q < 0 ? (uchar)fill : x[i];
    }
}

static void move_rows(int item, int group, PARAMETERS) {
    COMPILED_ONCE(rows)
    if (item * span >= e5) return;
    #pragma nounroll
    for (int row = group * lines; row < min((group + 1) * lines, rows); ++row) move_span(item * span, row, ARGUMENTS);
}

kernel void move(PARAMETERS) {
    move_rows(get_global_id(0), get_global_id(1), ARGUMENTS);
}
