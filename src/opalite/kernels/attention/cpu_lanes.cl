// Operations of CPU attention kernels on PACK keys at once. Include after attention/blind_rows.cl.
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define GET(p, i) VLOAD(PACK, i, p)
#define PUT(p, i, v) VSTORE(PACK, v, i, p)
#if STORAGE == 2
#define FIRST_LANES(valid) CONVERT_N(PACK, long)(LANES < (int)(valid))
#else
#define FIRST_LANES(valid) (LANES < (int)(valid))
#endif
#ifndef EXPV
#define EXPV exp
#define EXP1 exp
#endif
#ifndef TANHV
#define TANHV tanh
#endif

// PACK elements of a row of the mask from key t on.
static inline ACCV mask_lanes(global const MASK_REAL *mask, int t, int T) {
#if MASK == 2
    return (ACCV)LOAD_MASK(mask, 0);
#else
    if (t + PACK <= T) return LOADV_MASK(mask, t);
    ACC lanes[PACK];
    for (int l = 0; l < PACK; ++l) lanes[l] = t + l < T ? LOAD_MASK(mask, t + l) : (ACC)0;
    return VLOAD(PACK, 0, lanes);
#endif
}
