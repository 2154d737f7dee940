// Put in front of kernels in which WG adjacent work-items walk one row together; a work-group owns ROWS rows.
// Grid: WG, rows; work-group: WG, ROWS.
//   FOLD_ROW(f, v, part)  v becomes f over the v of the row's WG work-items; f is a macro of two arguments and `part` a
//                         local array of WG * ROWS elements. All work-items of the group must get here.
//   load_part(row, i, columns, fill)  the row's last elements, from `i` on, and `fill` in the lanes past its end
//   store_part(row, i, columns, v)    the reverse, leaving out those lanes
#ifndef WG
#define WG 1
#endif
#ifndef ROWS
#define ROWS 1
#endif
#define ROW_GROUP __attribute__((reqd_work_group_size(WG, ROWS, 1)))
#if WG == 1
#define LOCAL_PARTS(type, part)
#define FOLD_ROW(f, v, part)
#else
#define LOCAL_PARTS(type, part) local type part[WG * ROWS]
#define FOLD_ROW(f, v, part)                                              \
    do {                                                                  \
        const int at_ = get_local_id(1) * WG + get_local_id(0);           \
        barrier(CLK_LOCAL_MEM_FENCE);                                     \
        part[at_] = (v);                                                  \
        for (int step_ = WG / 2; step_ > 0; step_ /= 2) {                 \
            barrier(CLK_LOCAL_MEM_FENCE);                                 \
            if ((int)get_local_id(0) < step_) part[at_] = f(part[at_], part[at_ + step_]); \
        }                                                                 \
        barrier(CLK_LOCAL_MEM_FENCE);                                     \
        (v) = part[at_ - (int)get_local_id(0)];                           \
    } while (0)
#endif

static inline ACCV load_part(global const REAL *row, int i, int columns, ACC fill) {
    ACCV v = (ACCV)fill;
    #pragma unroll
    for (int k = 0; k < PACK; ++k)
        if (i + k < columns) ((ACC *)&v)[k] = LOAD(row, i + k);
    return v;
}

static inline void store_part(global REAL *row, int i, int columns, ACCV v) {
    #pragma unroll
    for (int k = 0; k < PACK; ++k)
        if (i + k < columns) STORE(row, i + k, ((const ACC *)&v)[k]);
}
