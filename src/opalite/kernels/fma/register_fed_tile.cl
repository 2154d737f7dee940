// Register tiles of plain multiply-adds that each work-item reads by itself, through the caches: no local memory, no barrier.
//   sum[i][j] += a[i][l] * b[l][j] for TM rows, four terms and TN vectors of four columns
#ifndef TM
#define TM 4
#define TN 1
#endif
#if defined(ACC_IS_FLOAT) && !defined(ACC_HALF)
#define MULTIPLY_ADD(x, y, z) fma(x, y, z)
#else
#define MULTIPLY_ADD(x, y, z) ((x) * (y) + (z))
#endif
#define UNROLLED _Pragma("unroll")

static inline void multiply_four(ACCV sum[TM][TN], const ACCV a[TM], const ACCV b[4][TN]) {
    UNROLLED
    for (int i = 0; i < TM; ++i) {
        UNROLLED
        for (int j = 0; j < TN; ++j) {
            sum[i][j] = MULTIPLY_ADD((ACCV)(a[i].s0), b[0][j], sum[i][j]);
            sum[i][j] = MULTIPLY_ADD((ACCV)(a[i].s1), b[1][j], sum[i][j]);
            sum[i][j] = MULTIPLY_ADD((ACCV)(a[i].s2), b[2][j], sum[i][j]);
            sum[i][j] = MULTIPLY_ADD((ACCV)(a[i].s3), b[3][j], sum[i][j]);
        }
    }
}

// Four neighbours at p + at, of which those before `end` exist, counted from `first`; zero if the line does not exist.
static inline ACCV four(global const REAL *p, size_t at, int first, int end, bool exists) {
    if (!exists || first >= end) return (ACCV)0;
    if (first + PACK <= end) return LOADV(p, at);
    ACC lanes[PACK];
    UNROLLED
    for (int l = 0; l < PACK; ++l) lanes[l] = first + l < end ? LOAD(p, at + l) : (ACC)0;
    return (ACCV)(lanes[0], lanes[1], lanes[2], lanes[3]);
}
