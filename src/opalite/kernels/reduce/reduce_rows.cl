// y[r] = reduction of x[r, 0..columns): WG work-items share a row or a part of it, PACK elements at a time
// (reduce/work_group_rows.cl, reduce/reduction_kinds.cl). Grid: WG, rows * parts.
//   parts, span   a row is taken in `parts` parts of `span` columns each; with more than one, y holds [rows, parts]
//   width         columns of the output as a matrix, for the epilogue (rows)
#include "reduce/reduction_kinds.cl"

// JOIN of the columns that fall to this work-item.
static inline ACCV own_columns(global const SOURCE *x, int columns) {
    ACCV total = (ACCV)START;
    int i = get_local_id(0) * PACK;
#if defined(BLOCK_LOAD) && FIRST_PASS && READS == 0
    for (int at = 0; BLOCKS_FIT && at + WG * PACK <= columns;) {
        ACCV a = (ACCV)START;
        const int stop = min(columns, at + BLOCK * WG * PACK);
        for (; at + WG * PACK <= stop; at += WG * PACK, i += WG * PACK) {
            const ACCV u = MAP(BLOCK_LOAD(x + at));
            a = JOIN(a, u);
        }
        total = JOIN(total, a);
    }
#endif
    while (i + PACK <= columns) {
        ACCV a = (ACCV)START, b = (ACCV)START;
        const int stop = min(columns, i + 2 * BLOCK * WG * PACK);
        for (; i + (WG + 1) * PACK <= stop; i += 2 * WG * PACK) {
            const ACCV u = TAKE(PACK, x, i), v = TAKE(PACK, x, i + WG * PACK);
            a = JOIN(a, u);
            b = JOIN(b, v);
        }
        for (; i + PACK <= stop; i += WG * PACK) {
            const ACCV v = TAKE(PACK, x, i);
            a = JOIN(a, v);
        }
        a = JOIN(a, b);
        total = JOIN(total, a);
    }
    return total;
}

kernel ROW_GROUP void reduce_rows(global const SOURCE *x, global RESULT *y, int rows, int columns, int parts, int span,
                                  int count, int width EPILOGUE_PARAMS) {
    LOCAL_PARTS(ACC, part);
    const bool inside = get_global_id(1) < rows * parts;
    const int id = inside ? get_global_id(1) : 0, begin = id % parts * span;
    const int own = inside ? clamp(columns - begin, 0, span) : 0, whole = own / PACK * PACK;
    x += (size_t)(id / parts) * columns + begin;
    ACC v = join_lanes(own_columns(x, own));
    for (int i = whole + get_local_id(0); i < own; i += WG) {
        const ACC e = TAKE(1, x, i);
        v = JOIN(v, e);
    }
    FOLD_ROW(JOIN, v, part);
#if KIND == 9
    const ACC shift = isfinite(v) ? v : (ACC)0;
    ACCV sums = (ACCV)0;
    for (int i = get_local_id(0) * PACK; i + PACK <= own; i += WG * PACK) sums += exp(ELEMENTS(PACK, x, i) - shift);
    ACC sum = 0;
    for (int k = 0; k < PACK; ++k) sum += ((const ACC *)&sums)[k];
    for (int i = whole + get_local_id(0); i < own; i += WG) sum += exp(ELEMENTS(1, x, i) - shift);
    FOLD_ROW(LANES_ADD, sum, part);
    v = log(sum) + shift;
#endif
    if (!inside || get_local_id(0) > 0) return;
#if LAST_PASS
    v = FINISH(v, count);
    v = EPILOGUE1(v, id / width, id % width, rows / width, width);
#endif
    GIVE(1, y, id, v);
}
