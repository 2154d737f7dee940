// Resize along any axes. Elements are vectors of PACK lanes: single elements of flat tensors (PACK 1, adjacent axes
// that are not resized merged into one), or the channel blocks of packed ones.
//   RANK   number of axes, 1 to 5      SPAN   outputs along the last axis that one work-item computes
//   LAST_TAPS   (resize_weighted) taps along the last axis: 1 where it is copied, 2 or 4, or 0 if not known ahead
//   ELEM   (resize_nearest) uchar, ushort, uint or ulong: moves one element
// `axes` holds for each axis (size in y, stride in x, taps, start): output position o reads the entries start + o * taps
// and following of `axes`, which are offsets in x, weighted by the same entries of `weights`. start 0: copied one to
// one. A negative offset: position o is outside x and takes `fill`.
#ifndef LAST_TAPS
#define LAST_TAPS 0
#endif
#define SIZE(k) axes[4 * (k)]
#define STRIDE(k) axes[4 * (k) + 1]
#define TAPS(k) axes[4 * (k) + 2]
#define START(k) axes[4 * (k) + 3]
#define LAST (RANK - 1)

#ifdef ELEM
kernel void resize_nearest(
    global const ELEM *x, global ELEM *y, global const int *axes, int items, int spans, ELEM fill
) {
    const int id = get_global_id(0);
    if (id >= items) return;
    const int row = id / spans;
    int rest = row, base = 0, inside = 1;
    for (int k = RANK - 2; k >= 0; --k) {
        const int q = rest / SIZE(k), o = rest - q * SIZE(k);
        const int offset = START(k) ? axes[START(k) + o] : o * STRIDE(k);
        inside &= offset >= 0;
        base += offset;
        rest = q;
    }
    const int width = SIZE(LAST), start = START(LAST);
    const int begin = (id - row * spans) * SPAN, end = min(begin + SPAN, width);
    global ELEM *to = y + (size_t)row * width * PACK;
    if (start == 0 && inside) {
        for (int o = begin; o < end; ++o) VSTORE(PACK, VLOAD(PACK, (size_t)(base + o) * PACK, x), o * PACK, to);
        return;
    }
    for (int o = begin; o < end; ++o) {
        const int offset = axes[start + o];
        if (inside && offset >= 0) {
            VSTORE(PACK, VLOAD(PACK, (size_t)(base + offset) * PACK, x), o * PACK, to);
        } else {
            VSTORE(PACK, (VEC_T(ELEM, PACK))(fill), o * PACK, to);
        }
    }
}

#else
// BODY for each combination of taps along axis k and those inside it; offset[k + 1] and weight[k + 1] include axis k.
#define EACH_TAP(k, BODY)                                                                      \
    for (int t##k = 0; t##k < taps[k]; ++t##k) {                                               \
        offset[k + 1] = offset[k] + (first[k] ? axes[first[k] + t##k] : 0);                    \
        weight[k + 1] = first[k] ? weight[k] * weights[first[k] + t##k] : weight[k];           \
        BODY                                                                                   \
    }
#define LAST_TAP(t) \
    sum += weight[LAST] * at_weight[t] * LOADV(x, (size_t)(offset[LAST] + at_offset[t]) * PACK);
#if LAST_TAPS == 1
#define LAST_AXIS sum += weight[LAST] * LOADV(x, (size_t)(offset[LAST] + o) * PACK);
#elif LAST_TAPS == 2
#define LAST_AXIS LAST_TAP(0) LAST_TAP(1)
#elif LAST_TAPS == 4
#define LAST_AXIS LAST_TAP(0) LAST_TAP(1) LAST_TAP(2) LAST_TAP(3)
#else
#define LAST_AXIS for (int t = 0; t < last_taps; ++t) { LAST_TAP(t) }
#endif

kernel void resize_weighted(
    global const REAL *x, global REAL *y, global const int *axes, global const float *weights, int items, int spans, float fill
) {
    const int id = get_global_id(0);
    if (id >= items) return;
    const int row = id / spans;
    // For each outer axis: its taps at this row, and where they begin (0: none, its offset is in offset[0]).
    int taps[RANK], first[RANK], offset[RANK];
    ACC weight[RANK];
    offset[0] = 0;
    weight[0] = 1;
    int rest = row, inside = 1;
    for (int k = RANK - 2; k >= 0; --k) {
        const int q = rest / SIZE(k), o = rest - q * SIZE(k);
        taps[k] = TAPS(k);
        first[k] = START(k) ? START(k) + o * TAPS(k) : 0;
        if (first[k]) {
            inside &= axes[first[k]] >= 0;
        } else {
            offset[0] += o * STRIDE(k);
        }
        rest = q;
    }
    const int width = SIZE(LAST), start = START(LAST), last_taps = TAPS(LAST);
    const int begin = (id - row * spans) * SPAN, end = min(begin + SPAN, width);
    for (int o = begin; o < end; ++o) {
#if LAST_TAPS != 1
        global const int *at_offset = axes + start + o * last_taps;
        global const float *at_weight = weights + start + o * last_taps;
        const int here = inside && at_offset[0] >= 0;
#else
        const int here = inside;
#endif
        ACCV sum = (ACCV)(here ? (ACC)0 : (ACC)fill);
        if (here) {
#if RANK == 1
            LAST_AXIS
#elif RANK == 2
            EACH_TAP(0, LAST_AXIS)
#elif RANK == 3
            EACH_TAP(0, EACH_TAP(1, LAST_AXIS))
#elif RANK == 4
            EACH_TAP(0, EACH_TAP(1, EACH_TAP(2, LAST_AXIS)))
#else
            EACH_TAP(0, EACH_TAP(1, EACH_TAP(2, EACH_TAP(3, LAST_AXIS))))
#endif
        }
        STOREV(y, ((size_t)row * width + o) * PACK, sum);
    }
}
#endif
