// y[z, m, n] = sum_k a[z, m, k] b[z, k, n] for few rows: b is read once, coalesced over the work-items of a group.
// A work-group of TX x TY work-items owns adjacent columns and splits k; partial sums are reduced in local
// memory. With b by rows, TX vectors of columns and TY parts of k; with b stored [N, K] (TRANS_B), TY columns and TX parts.
// Grid: (TX * groups of columns, TY, ceil(M / MR) * batches).
//   MR      rows of a work-group
//   PACK    neighbours in b that a work-item loads at once; more than 1 divide its rows
//   UNROLL  such loads in flight at any time
#include "matmul/batch_offsets.cl"
#include "include/reduce_lanes.cl"
#include "include/aligned_blocks.cl"
#ifndef TX
#define TX 32
#define TY 8
#define MR 1
#define UNROLL 4
#endif
#ifndef TRANS_A
#define TRANS_A 0
#endif
#ifndef TRANS_B
#define TRANS_B 0
#endif
#define OWN (TRANS_B ? 1 : PACK) // columns of a work-item
#define COLUMNS (TRANS_B ? TY : TX * PACK)
#define PARTS (TRANS_B ? TX : TY)
#define FETCH(i) \
    ((i) * PARTS + own < steps && n < N \
        ? LOADV(b, TRANS_B ? (size_t)n * ldb + ((i) * PARTS + own) * PACK : (size_t)((i) * PARTS + own) * ldb + n) : (ACCV)0)

// The elements of row m of a for step s of b.
static inline ACCV factor(global const REAL *restrict a, int m, int s, int lda) {
#if !TRANS_B
    return (ACCV)LOAD(a, TRANS_A ? (size_t)s * lda + m : (size_t)m * lda + s);
#elif TRANS_A
    ACCV v;
    for (int c = 0; c < PACK; ++c) ((ACC *)&v)[c] = LOAD(a, (size_t)(s * PACK + c) * lda + m);
    return v;
#else
    return LOADV(a, (size_t)m * lda + s * PACK);
#endif
}

__attribute__((reqd_work_group_size(TX, TY, 1)))
kernel void matmul_skinny(global const REAL *restrict a, global const REAL *restrict b, global REAL *restrict y,
                          global const int *batch, int dims, int batches, int M, int N, int K, int lda,
                          int ldb EPILOGUE_PARAMS) {
    local ACC part[MR][PARTS][COLUMNS + 1];
    const int column = TRANS_B ? get_local_id(1) : get_local_id(0) * PACK, own = TRANS_B ? get_local_id(0) : get_local_id(1);
    const int n = get_group_id(0) * COLUMNS + column, steps = TRANS_B ? K / PACK : K;
    const int strips = (M + MR - 1) / MR, z = get_global_id(2) / strips, m0 = get_global_id(2) % strips * MR;
    size_t a_offset, b_offset;
    batch_offsets(batch, dims, z, &a_offset, &b_offset);
    a += a_offset;
    b += b_offset;
    ACCV sum[MR], ring[UNROLL];
    #pragma unroll
    for (int u = 0; u < UNROLL; ++u) ring[u] = FETCH(u);
    #pragma unroll
    for (int i = 0; i < MR; ++i) sum[i] = (ACCV)0;
    #pragma unroll 1
    for (int first = 0; first * PARTS < steps; first += UNROLL) {
        #pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const int s = (first + u) * PARTS + own;
            const ACCV bv = ring[u];
            ring[u] = FETCH(first + u + UNROLL);
            if (s < steps)
                #pragma unroll
                for (int i = 0; i < MR; ++i) sum[i] += factor(a, min(m0 + i, M - 1), s, lda) * bv;
        }
    }
    #pragma unroll
    for (int i = 0; i < MR; ++i) {
#if TRANS_B
        part[i][own][column] = SUM_LANES(sum[i]);
#else
        const ACCV found = sum[i];
        #pragma unroll
        for (int c = 0; c < OWN; ++c) part[i][own][column + c] = ((const ACC *)&found)[c];
#endif
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int e = get_local_id(1) * TX + get_local_id(0); e < MR * COLUMNS; e += TX * TY) {
        const int i = e / COLUMNS, c = get_group_id(0) * COLUMNS + e % COLUMNS, r = z * M + m0 + i;
        if (m0 + i >= M || c >= N) continue;
        ACC total = 0;
        for (int p = 0; p < PARTS; ++p) total += part[i][p][e % COLUMNS];
        const ACC out = EPILOGUE1(total, r, c, batches * M, N);
        STORE(y, (size_t)r * N + c, out);
    }
}
