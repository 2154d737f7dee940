// y = position of the largest (LARGEST 1) or smallest element along an axis.
//   LAST   among equals the last one, else the first. NaN counts as the extreme, as NumPy has it.
#ifndef LARGEST
#define LARGEST 1
#define LAST 0
#endif
// Positions are as wide as elements, so that a comparison of vectors selects among them.
#if STORAGE == 2 || STORAGE == 4 || STORAGE == 6
#define INDEX long
#else
#define INDEX int
#endif
#define INDEXV VEC_T(INDEX, PACK)

#if LARGEST
#define OVER(v, best) ((v) > (best))
#else
#define OVER(v, best) ((v) < (best))
#endif
#if ACC_IS_FLOAT
#define IS_NAN(v) ((v) != (v))
#define SAME(v, best) (((v) == (best)) | (IS_NAN(v) & IS_NAN(best)))
#define BEATS(v, best) (OVER(v, best) | (IS_NAN(v) & ((best) == (best))))
#else
#define SAME(v, best) ((v) == (best))
#define BEATS(v, best) OVER(v, best)
#endif
// Whether v replaces `best`, which stands before it.
#if LAST
#define REPLACES(v, best) (BEATS(v, best) | SAME(v, best))
#define NEARER(a, b) ((a) > (b))
#else
#define REPLACES(v, best) BEATS(v, best)
#define NEARER(a, b) ((a) < (b))
#endif
// Puts candidate (v, i) in the place of (best, at) if it is better, wherever it stands.
#define CHALLENGE(v, i, best, at)                                             \
    if (BEATS(v, best) || (SAME(v, best) && NEARER(i, at))) {                 \
        best = v;                                                             \
        at = i;                                                               \
    }

#if ROWS_FORM
// Along the last axis: WG work-items share a row, PACK elements at a time (reduce/work_group_rows.cl). Grid: WG, rows.
kernel ROW_GROUP void arg_reduce_rows(global const REAL *x, global long *y, int rows, int columns) {
    const int first = get_local_id(0);
    const bool inside = get_global_id(1) < rows;
    x += inside ? (size_t)get_global_id(1) * columns : 0;
    // Everyone begins with element 0, which is a candidate of every row.
    ACCV bests = (ACCV)LOAD(x, 0);
    INDEXV ats = (INDEXV)0, now = CONVERT_N(PACK, INDEX)(LANES) + (INDEX)(first * PACK);
    int i = first * PACK;
    for (; i + PACK <= columns; i += WG * PACK, now += (INDEX)(WG * PACK)) {
        const ACCV v = LOADV(x, i);
        const INDEXV better = REPLACES(v, bests);
        bests = better ? v : bests;
        ats = better ? now : ats;
    }
    ACC best = ((const ACC *)&bests)[0];
    INDEX at = ((const INDEX *)&ats)[0];
    for (int k = 1; k < PACK; ++k) CHALLENGE(((const ACC *)&bests)[k], ((const INDEX *)&ats)[k], best, at);
    for (; i < columns; ++i) CHALLENGE(LOAD(x, i), i, best, at);
#if WG > 1
    local ACC part[WG * ROWS];
    local INDEX part_at[WG * ROWS];
    const int own = get_local_id(1) * WG + first;
    part[own] = best;
    part_at[own] = at;
    for (int step = WG / 2; step > 0; step /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (first < step) {
            CHALLENGE(part[own + step], part_at[own + step], best, at);
            part[own] = best;
            part_at[own] = at;
        }
    }
#endif
    if (inside && first == 0) y[get_global_id(1)] = at;
}

#else
// Along the middle axis of x[outer, length, inner]: one work-item for PACK adjacent lines, PACK <= inner.
// Grid: ceil(inner / PACK), outer.
kernel void arg_reduce_lines(global const REAL *x, global long *y, int outer, int length, int inner) {
    const int chunk = get_global_id(0) * PACK, o = get_global_id(1);
    if (chunk >= inner || o >= outer) return;
    // The last vector is shifted to end with the line; it overlaps the previous vector.
    const int i = min(chunk, inner - PACK);
    x += (size_t)o * length * inner + i;
    ACCV best = LOADV(x, 0);
    INDEXV at = (INDEXV)0;
    for (int k = 1; k < length; ++k) {
        const ACCV v = LOADV(x, (size_t)k * inner);
        const INDEXV better = REPLACES(v, best);
        best = better ? v : best;
        at = better ? (INDEXV)k : at;
    }
    VSTORE(PACK, CONVERT_N(PACK, long)(at), (size_t)o * inner + i, y);
}
#endif
