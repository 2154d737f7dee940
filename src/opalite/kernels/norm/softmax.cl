// y = exp(x - max) / sum, with LOG y = x - max - log(sum), where sum is that of exp(x - max) over a line.
//   STASH   1: y holds exp(x - max) until the sum is known; 0: computed a second time, exact where y is narrow
// One instruction of a CPU, unlike fmax; a NaN in b is passed over, but not by exp.
#define MAX2(a, b) ((b) > (a) ? (b) : (a))
#define ADD2(a, b) ((a) + (b))
#if STASH && !LOG
#define KEEP 1
#else
#define KEEP 0
#endif
// The result from SOURCE's element v.
#if LOG
#define SOURCE x
#define RESULT(v, most, scale) ((v) - (most) - (scale))
#elif KEEP
#define SOURCE y
#define RESULT(v, most, scale) ((v) * (scale))
#else
#define SOURCE x
#define RESULT(v, most, scale) (exp((v) - (most)) * (scale))
#endif
// Converts the sum to an addend (LOG) or a factor.
#if LOG
#define SCALE_OF(sum) log(sum)
#else
#define SCALE_OF(sum) ((ACC)1 / (sum))
#endif

#ifdef VEC
#include "include/sum_block.cl"
// The tensor as [outer, length, inner], along the middle axis: one work-item walks VEC adjacent lines.
#define WALK(N)                                                                        \
    do {                                                                               \
        VEC_T(ACC, N) most = (VEC_T(ACC, N))(ACC_LOWEST), sum = (VEC_T(ACC, N))(0);    \
        for (int j = 0; j < length; ++j) {                                             \
            const VEC_T(ACC, N) v = LOADN(N, x, base + j * inner);                     \
            most = MAX2(most, v);                                                      \
        }                                                                              \
        for (int j = 0; j < length;) {                                                 \
            VEC_T(ACC, N) part = (VEC_T(ACC, N))(0);                                   \
            for (const int end = min(length, j + SUM_BLOCK); j < end; ++j) {           \
                const VEC_T(ACC, N) e = exp(LOADN(N, x, base + j * inner) - most);     \
                part += e;                                                             \
                if (KEEP) STOREN(N, y, base + j * inner, e);                           \
            }                                                                          \
            sum += part;                                                               \
        }                                                                              \
        const VEC_T(ACC, N) scale = SCALE_OF(sum);                                     \
        for (int j = 0; j < length; ++j) {                                             \
            const int at = base + j * inner;                                           \
            STOREN(N, y, at, RESULT(LOADN(N, SOURCE, at), most, scale));               \
        }                                                                              \
    } while (0)

kernel void softmax_lines(global const REAL *x, global REAL *y, int items, int chunks, int length, int inner) {
#include "reduce/walk_lines.cl"
}

#else
// Along the last axis: WG work-items share a row, PACK elements at a time (reduce/work_group_rows.cl).
kernel ROW_GROUP void softmax_rows(global const REAL *x, global REAL *y, int rows, int columns) {
    LOCAL_PARTS(ACC, part);
    const bool inside = get_global_id(1) < rows;
    const int first = get_local_id(0) * PACK, end = inside ? columns : 0;
    const size_t row = inside ? (size_t)get_global_id(1) * columns : 0;
    x += row;
    y += row;

    ACCV mosts = (ACCV)ACC_LOWEST;
    int i = first;
    for (; i + PACK <= end; i += WG * PACK) {
        const ACCV v = LOADV(x, i);
        mosts = MAX2(mosts, v);
    }
    if (i < end) {
        const ACCV v = load_part(x, i, end, ACC_LOWEST);
        mosts = MAX2(mosts, v);
    }
    ACC most = FOLD_LANES(MAX2, mosts);
    FOLD_ROW(MAX2, most, part);

    ACCV sums = (ACCV)0;
    for (i = first; i + PACK <= end; i += WG * PACK) {
        const ACCV e = exp(LOADV(x, i) - most);
        sums += e;
        if (KEEP) STOREV(y, i, e);
    }
    if (i < end) {
        const ACCV e = exp(load_part(x, i, end, ACC_LOWEST) - most);
        sums += e;
        if (KEEP) store_part(y, i, end, e);
    }
    ACC sum = SUM_LANES(sums);
    FOLD_ROW(ADD2, sum, part);

    const ACC scale = SCALE_OF(sum);
    for (i = first; i + PACK <= end; i += WG * PACK) STOREV(y, i, RESULT(LOADV(SOURCE, i), most, scale));
    if (i < end) store_part(y, i, end, RESULT(load_part(SOURCE, i, end, 0), most, scale));
}
#endif
