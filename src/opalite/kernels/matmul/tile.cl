// y[z, m, n] = sum_k a[z, m, k] b[z, k, n] in tiles that a work-group shares through local memory: the GPU's kernel.
// A work-group of TX x TY work-items computes TY * TM rows by TX * TN columns, BK terms at a time; each work-item keeps
// TM x TN sums, in vectors of PACK = 4 columns. Grid: (ceil(N / (TX * TN)) * TX, ceil(M / (TY * TM)) * TY, batches).
//   TM, TN    multiples of 4     TRANS_A, TRANS_B   the last two dimensions of that input are stored swapped
#include "matmul/batch.cl"
#ifndef TX
#define TX 16
#define TY 16
#define TM 4
#define TN 4
#define BK 16
#endif
#ifndef TRANS_A
#define TRANS_A 0
#endif
#ifndef TRANS_B
#define TRANS_B 0
#endif
#define BM (TY * TM)
#define BN (TX * TN)
#define ITEMS (TX * TY)
#define A_LOADS ((BM * BK + ITEMS - 1) / ITEMS)
#define B_LOADS ((BN * BK + ITEMS - 1) / ITEMS)
// One vector more for each term, so that writes along k do not meet in one memory bank.
#define A_PITCH (BM / PACK + 1)
#define B_PITCH (BN / PACK + 1)

// Element number e of a tile, counted the way the input lies in memory, is at (m or n, k).
#define A_M(e) (TRANS_A ? (e) % BM : (e) / BK)
#define A_K(e) (TRANS_A ? (e) / BM : (e) % BK)
#define B_N(e) (TRANS_B ? (e) / BK : (e) % BN)
#define B_K(e) (TRANS_B ? (e) % BK : (e) / BN)

__attribute__((reqd_work_group_size(TX, TY, 1)))
kernel void matmul_tile(global const REAL *restrict a, global const REAL *restrict b, global REAL *restrict y,
                        global const int *batch, int dims, int batches, int M, int N, int K, int lda,
                        int ldb EPILOGUE_PARAMS) {
    local ACCV a_tile[BK * A_PITCH];
    local ACCV b_tile[BK * B_PITCH];
    local ACC *a_cell = (local ACC *)a_tile, *b_cell = (local ACC *)b_tile;
    const int tx = get_local_id(0), ty = get_local_id(1), item = ty * TX + tx, z = get_global_id(2);
    const int m0 = get_group_id(1) * BM, n0 = get_group_id(0) * BN;
    size_t a_offset, b_offset;
    batch_offsets(batch, dims, z, &a_offset, &b_offset);
    a += a_offset;
    b += b_offset;

    ACCV sum[TM][TN / PACK];
    #pragma unroll
    for (int i = 0; i < TM; ++i)
        #pragma unroll
        for (int j = 0; j < TN / PACK; ++j) sum[i][j] = (ACCV)0;

    for (int k0 = 0; k0 < K; k0 += BK) {
        #pragma unroll
        for (int i = 0; i < A_LOADS; ++i) {
            const int e = item + i * ITEMS, m = m0 + A_M(e), k = k0 + A_K(e);
            const bool inside = m < M && k < K;
            const ACC v = inside ? LOAD(a, TRANS_A ? (size_t)k * lda + m : (size_t)m * lda + k) : (ACC)0;
            if (BM * BK % ITEMS == 0 || e < BM * BK) a_cell[A_K(e) * A_PITCH * PACK + A_M(e)] = v;
        }
        #pragma unroll
        for (int i = 0; i < B_LOADS; ++i) {
            const int e = item + i * ITEMS, n = n0 + B_N(e), k = k0 + B_K(e);
            const bool inside = n < N && k < K;
            const ACC v = inside ? LOAD(b, TRANS_B ? (size_t)n * ldb + k : (size_t)k * ldb + n) : (ACC)0;
            if (BN * BK % ITEMS == 0 || e < BN * BK) b_cell[B_K(e) * B_PITCH * PACK + B_N(e)] = v;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll
        for (int k = 0; k < BK; ++k) {
            ACCV bv[TN / PACK];
            #pragma unroll
            for (int j = 0; j < TN / PACK; ++j) bv[j] = b_tile[k * B_PITCH + j * TX + tx];
            #pragma unroll
            for (int i = 0; i < TM / PACK; ++i) {
                const ACCV av = a_tile[k * A_PITCH + i * TY + ty];
                #pragma unroll
                for (int j = 0; j < TN / PACK; ++j) {
                    sum[i * PACK + 0][j] += av.s0 * bv[j];
                    sum[i * PACK + 1][j] += av.s1 * bv[j];
                    sum[i * PACK + 2][j] += av.s2 * bv[j];
                    sum[i * PACK + 3][j] += av.s3 * bv[j];
                }
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        const int m = m0 + (i / PACK * TY + ty) * PACK + i % PACK, r = z * M + m;
        if (m >= M) continue;
        #pragma unroll
        for (int j = 0; j < TN / PACK; ++j) {
            const int n = n0 + (j * TX + tx) * PACK;
            const size_t at = (size_t)r * N + n;
            if (n + PACK <= N) {
                const ACCV out = EPILOGUE(sum[i][j], r, n, batches * M, N);
                STOREV(y, at, out);
            } else {
                ACC lanes[PACK];
                VSTORE(PACK, sum[i][j], 0, lanes);
                for (int l = 0; l < PACK && n + l < N; ++l) {
                    const ACC out = EPILOGUE1(lanes[l], r, n + l, batches * M, N);
                    STORE(y, at + l, out);
                }
            }
        }
    }
}
