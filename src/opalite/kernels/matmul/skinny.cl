// y[z, m, n] = sum_k a[z, m, k] b[z, k, n] for few rows: b is read once, by all work-items of a group side by side.
// A work-group of TX x TY work-items owns neighbouring columns and splits k among the others; their sums meet in local
// memory. With b by rows, TX columns and TY parts of k; with b stored [N, K] (TRANS_B), TY columns and TX parts.
// Grid: (TX * groups of columns, TY, ceil(M / MR) * batches).
//   MR   rows of a work-group
#include "matmul/batch.cl"
#ifndef TX
#define TX 32
#define TY 8
#define MR 1
#endif
#ifndef TRANS_A
#define TRANS_A 0
#endif
#ifndef TRANS_B
#define TRANS_B 0
#endif
#define COLUMNS (TRANS_B ? TY : TX)
#define PARTS (TRANS_B ? TX : TY)

__attribute__((reqd_work_group_size(TX, TY, 1)))
kernel void matmul_skinny(global const REAL *restrict a, global const REAL *restrict b, global REAL *restrict y,
                          global const int *batch, int dims, int batches, int M, int N, int K, int lda,
                          int ldb EPILOGUE_PARAMS) {
    local ACC part[MR][PARTS][COLUMNS + 1];
    const int column = TRANS_B ? get_local_id(1) : get_local_id(0), own = TRANS_B ? get_local_id(0) : get_local_id(1);
    const int n = get_group_id(0) * COLUMNS + column;
    const int strips = (M + MR - 1) / MR, z = get_global_id(2) / strips, m0 = get_global_id(2) % strips * MR;
    size_t a_offset, b_offset;
    batch_offsets(batch, dims, z, &a_offset, &b_offset);
    a += a_offset;
    b += b_offset;
    ACC sum[MR];
    #pragma unroll
    for (int i = 0; i < MR; ++i) sum[i] = 0;
    if (n < N)
        #pragma unroll 4
        for (int k = own; k < K; k += PARTS) {
            const ACC bv = LOAD(b, TRANS_B ? (size_t)n * ldb + k : (size_t)k * ldb + n);
            #pragma unroll
            for (int i = 0; i < MR; ++i) {
                const int m = min(m0 + i, M - 1);
                sum[i] += LOAD(a, TRANS_A ? (size_t)k * lda + m : (size_t)m * lda + k) * bv;
            }
        }
    #pragma unroll
    for (int i = 0; i < MR; ++i) part[i][own][column] = sum[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int left = PARTS / 2; left > 0; left /= 2) {
        if (own < left)
            #pragma unroll
            for (int i = 0; i < MR; ++i) part[i][own][column] += part[i][own + left][column];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (n >= N) return;
    for (int i = own; i < MR && m0 + i < M; i += PARTS) {
        const int r = z * M + m0 + i;
        const ACC out = EPILOGUE1(part[i][0][column], r, n, batches * M, N);
        STORE(y, (size_t)r * N + n, out);
    }
}
