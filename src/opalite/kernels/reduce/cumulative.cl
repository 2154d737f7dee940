// Running sums and products of a tensor seen as [outer, length, inner], along the middle axis.
//   PROD   product instead of sum    EXCLUSIVE   without the element itself    REVERSE   from the end
#if PROD
#define JOIN(a, b) ((a) * (b))
#define NEUTRAL 1
#else
#define JOIN(a, b) ((a) + (b))
#define NEUTRAL 0
#endif
#if REVERSE
#define PLACE(j) (length - 1 - (j))
#else
#define PLACE(j) (j)
#endif

#ifdef VEC
// N adjacent columns from element `base` on.
#define WALK(N)                                                           \
    do {                                                                  \
        VEC_T(ACC, N) total = (VEC_T(ACC, N))(NEUTRAL);                   \
        for (int j = 0; j < length; ++j) {                                \
            const int at = base + PLACE(j) * inner;                       \
            const VEC_T(ACC, N) value = LOADN(N, x, at);                  \
            const VEC_T(ACC, N) before = total;                           \
            total = JOIN(total, value);                                   \
            STOREN(N, y, at, EXCLUSIVE ? before : total);                 \
        }                                                                 \
    } while (0)

// One work-item walks VEC adjacent lines; `chunks` work-items share the `inner` columns of an outer position.
kernel void cumulative_walk(global const REAL *x, global REAL *y, int items, int chunks, int length, int inner) {
#include "reduce/walk_lines.cl"
}

#else
// One work-group of WG work-items scans one line, WG elements at a time.
kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void cumulative_scan(
    global const REAL *x, global REAL *y, int length, int inner
) {
    local ACC part[WG];
    const int i = get_local_id(0), line = get_group_id(0);
    const int outer = line / inner, base = outer * length * inner + (line - outer * inner);
    ACC carry = NEUTRAL;
    for (int first = 0; first < length; first += WG) {
        const int j = first + i;
        const int at = base + PLACE(j) * inner;
        part[i] = j < length ? LOAD(x, at) : (ACC)NEUTRAL;
        for (int step = 1; step < WG; step *= 2) {
            barrier(CLK_LOCAL_MEM_FENCE);
            const ACC left = i >= step ? part[i - step] : (ACC)NEUTRAL;
            barrier(CLK_LOCAL_MEM_FENCE);
            part[i] = JOIN(left, part[i]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        const ACC before = EXCLUSIVE ? (i ? part[i - 1] : (ACC)NEUTRAL) : part[i];
        if (j < length) STORE(y, at, JOIN(carry, before));
        carry = JOIN(carry, part[WG - 1]);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
#endif
