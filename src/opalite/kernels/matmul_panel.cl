// y[z, m, n] = sum_k a[z, m, k] b[z, k, n] in register tiles of MR rows by NV vectors of PACK columns, for CPUs.
// One work-item owns a panel of WIDTH = NV * PACK columns and walks down `rows` rows (a multiple of MR), so that the
// panel of b stays in the cache. Grid: (ceil(N / WIDTH), ceil(M / rows), batches), work-groups of one work-item.
//   PANELS    b holds panels [ceil(N / WIDTH), K, WIDTH], zeros past N; else rows of ldb elements, and N >= WIDTH
//   KS        separate sums for neighbouring k, to hide the latency of multiply-add in small tiles
//   TRANS_A   a is stored [K, M]
#include "matmul_batch.cl"
#ifndef MR
#define MR 8
#define NV 2
#define KS 1
#endif
#ifndef PANELS
#define PANELS 1
#endif
#ifndef TRANS_A
#define TRANS_A 0
#endif
#define WIDTH (NV * PACK)
#if TRANS_A
#define A_AT(i, k) LOAD(a_row[i], (size_t)(k) * lda)
#else
#define A_AT(i, k) LOAD(a_row[i], k)
#endif

__attribute__((reqd_work_group_size(1, 1, 1)))
kernel void matmul_panel(global const REAL *restrict a, global const REAL *restrict b, global REAL *restrict y,
                         global const int *batch, int dims, int batches, int M, int N, int K, int lda, int ldb,
                         int rows EPILOGUE_PARAMS) {
    const int panel = get_global_id(0), first = get_global_id(1) * rows, z = get_global_id(2);
    if (panel * WIDTH >= N || first >= M || z >= batches) return;
    size_t a_offset, b_offset;
    batch_offsets(batch, dims, z, &a_offset, &b_offset);
    // In rows the last panel begins early enough to lie inside them; its first columns are the neighbour's.
    const int low = panel * WIDTH, high = min(N, low + WIDTH), n0 = PANELS ? low : min(low, N - WIDTH);
    const int end = min(M, first + rows), step = PANELS ? WIDTH : ldb;
    a += a_offset;
    b += b_offset + (PANELS ? (size_t)panel * K * WIDTH : (size_t)n0);
    for (int m = first; m < end; m += MR) {
        global const REAL *a_row[MR];
        ACCV sum[KS][MR][NV];
        #pragma unroll
        for (int i = 0; i < MR; ++i) {
            // Rows past the end repeat the last one and are not stored.
            const int row = min(m + i, end - 1);
            a_row[i] = a + (TRANS_A ? (size_t)row : (size_t)row * lda);
            #pragma unroll
            for (int s = 0; s < KS; ++s)
                #pragma unroll
                for (int j = 0; j < NV; ++j) sum[s][i][j] = (ACCV)0;
        }
        global const REAL *b_row = b;
        int k = 0;
        #pragma unroll 1
        for (; k + KS <= K; k += KS) {
            #pragma unroll
            for (int s = 0; s < KS; ++s) {
                ACCV bv[NV];
                #pragma unroll
                for (int j = 0; j < NV; ++j) bv[j] = LOADV(b_row, j * PACK);
                #pragma unroll
                for (int i = 0; i < MR; ++i) {
                    const ACCV av = (ACCV)A_AT(i, k + s);
                    #pragma unroll
                    for (int j = 0; j < NV; ++j) sum[s][i][j] += av * bv[j];
                }
                b_row += step;
            }
        }
#if KS > 1
        #pragma unroll 1
        for (; k < K; ++k) {
            #pragma unroll
            for (int i = 0; i < MR; ++i)
                #pragma unroll
                for (int j = 0; j < NV; ++j) sum[0][i][j] += (ACCV)A_AT(i, k) * LOADV(b_row, j * PACK);
            b_row += step;
        }
#endif
        // Through memory, so that the epilogue is compiled once and not for each vector of the tile.
        ACCV tile[MR * NV];
        #pragma unroll
        for (int i = 0; i < MR; ++i)
            #pragma unroll
            for (int j = 0; j < NV; ++j) {
                #pragma unroll
                for (int s = 1; s < KS; ++s) sum[0][i][j] += sum[s][i][j];
                tile[i * NV + j] = sum[0][i][j];
            }
        const int count = min(MR, end - m);
        #pragma unroll 1
        for (int v = 0; v < count * NV; ++v) {
            const int r = z * M + m + v / NV, c = n0 + v % NV * PACK;
            const size_t at = (size_t)r * N;
            if (c >= low && c + PACK <= high) {
                const ACCV out = EPILOGUE(tile[v], r, c, batches * M, N);
                STOREV(y, at + c, out);
            } else {
                const ACC *lanes = (const ACC *)&tile[v];
                #pragma unroll 1
                for (int n = max(c, low); n < min(c + PACK, high); ++n) {
                    const ACC out = EPILOGUE1(lanes[n - c], r, n, batches * M, N);
                    STORE(y, at + n, out);
                }
            }
        }
    }
}
