// y[y0 + sum(c * ys)] = x[x0 + sum(q * xs)] along six axes, where q = (c - begin) / gap of each axis: transposes, slices, the
// parts of a concatenation, padding, and zeros between elements.  Where q is no whole number, `fill` is written; where it
// is not in 0..size, `mode` says what: 0 fill, 1 reflected, 2 the nearest element, 3 from the other end.
// `bytes` of an element: 1, 2, 4 or 8.  Grid: stretches of SPAN elements along the last axis, and rows of these.
#ifndef SPAN
#define SPAN 64
#endif
#define AXIS(a) int e##a, long xs##a, long ys##a, int begin##a, int gap##a, int size##a
#define WALK(a)                                                       \
    {                                                                 \
        const int next = rest / e##a, c = rest - next * e##a;         \
        const int q = source(c - begin##a, gap##a, size##a, mode);    \
        inside &= q >= 0;                                             \
        from += q * xs##a;                                            \
        to += c * ys##a;                                              \
        rest = next;                                                  \
    }

// The element that position c of a padded axis shows; -1 for none.
static inline int source(int c, int gap, int size, int mode) {
    if (gap > 1) return c >= 0 && c % gap == 0 && c / gap < size ? c / gap : -1;
    if (c >= 0 && c < size) return c;
    if (mode == 2) return c < 0 ? 0 : size - 1;
    if (mode == 3) return ((c % size) + size) % size;
    if (mode == 1) {
        const int turn = max(2 * (size - 1), 1), left = ((c % turn) + turn) % turn;
        return min(left, turn - left);
    }
    return -1;
}

kernel void move(
    global const uchar *x, global uchar *y, long x0, long y0, int rows, int bytes, int mode, ulong fill,
    AXIS(0), AXIS(1), AXIS(2), AXIS(3), AXIS(4), AXIS(5)
) {
    const int first = get_global_id(0) * SPAN, row = get_global_id(1);
    if (first >= e5 || row >= rows) return;
    int rest = row, inside = 1;
    long from = x0, to = y0;
    WALK(4) WALK(3) WALK(2) WALK(1) WALK(0)
    const int last = min(first + SPAN, e5);
    int c = first;
    if (inside && bytes == 4 && xs5 == 1 && ys5 == 1 && gap5 == 1 && first >= begin5 && last - begin5 <= size5) {
        #pragma nounroll
        for (; c + PACK <= last; c += PACK)
            STOREV((global float *)y, to + c, LOADV((global const float *)x, from + c - begin5));
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
