// y[z, m, n] = sum_k a[z, m, k] b[z, k, n] for devices whose local memory is no faster than global memory: a work-item computes TM
// rows by TN vectors of four columns from its own loads (fma/register_fed_tile.cl), neighbours take adjacent columns.
//   TRANS_A, TRANS_B   the last two dimensions of that input are stored swapped
//   PANELS   b is a constant in panels: [ceil(N / (4 * TN)), K in whole fours, 4 * TN], zeros past its columns and terms
// Grid: ceil(N / (4 * TN)), ceil(M / TM), batches.
#include "matmul/batch_offsets.cl"
#ifndef TRANS_A
#define TRANS_A 0
#endif
#ifndef TRANS_B
#define TRANS_B 0
#endif
#ifndef PANELS
#define PANELS 0
#endif
#include "fma/register_fed_tile.cl"
#define LANE(v, l) ((l) == 0 ? (v).s0 : (l) == 1 ? (v).s1 : (l) == 2 ? (v).s2 : (v).s3)

kernel void matmul_register(global const REAL *restrict a, global const REAL *restrict b, global REAL *restrict y,
                            global const int *batch, int dims, int batches, int M, int N, int K, int lda,
                            int ldb EPILOGUE_PARAMS) {
    const int n0 = get_global_id(0) * TN * PACK, m0 = get_global_id(1) * TM, z = get_global_id(2);
    if (n0 >= N || m0 >= M || z >= batches) return;
    size_t a_offset, b_offset;
    batch_offsets(batch, dims, z, &a_offset, &b_offset);
    a += a_offset;
#if PANELS
    b += (size_t)get_global_id(0) * ((K + 3) / 4 * 4) * (TN * PACK);
#else
    b += b_offset;
#endif
    ACCV sum[TM][TN];
    UNROLLED
    for (int i = 0; i < TM; ++i)
        UNROLLED
        for (int j = 0; j < TN; ++j) sum[i][j] = (ACCV)0;
    for (int k = 0; k < K; k += 4) {
        ACCV av[TM], bv[4][TN];
        UNROLLED
        for (int i = 0; i < TM; ++i) {
            const int m = min(m0 + i, M - 1);
#if TRANS_A
            ACC lanes[4];
            UNROLLED
            for (int l = 0; l < 4; ++l) lanes[l] = k + l < K ? LOAD(a, (size_t)(k + l) * lda + m) : (ACC)0;
            av[i] = (ACCV)(lanes[0], lanes[1], lanes[2], lanes[3]);
#else
            av[i] = four(a, (size_t)m * lda + k, k, K, true);
#endif
        }
        UNROLLED
        for (int j = 0; j < TN; ++j) {
#if PANELS
            UNROLLED
            for (int l = 0; l < 4; ++l) bv[l][j] = LOADV(b, ((size_t)(k + l) * TN + j) * PACK);
#elif TRANS_B
            ACCV rows[PACK];
            UNROLLED
            for (int l = 0; l < PACK; ++l) {
                const int n = min(n0 + j * PACK + l, N - 1);
                rows[l] = four(b, (size_t)n * ldb + k, k, K, true);
            }
            UNROLLED
            for (int l = 0; l < 4; ++l)
                bv[l][j] = (ACCV)(LANE(rows[0], l), LANE(rows[1], l), LANE(rows[2], l), LANE(rows[3], l));
#else
            const int n = n0 + j * PACK;
            UNROLLED
            for (int l = 0; l < 4; ++l) bv[l][j] = four(b, (size_t)(k + l) * ldb + n, n, N, k + l < K);
#endif
        }
        multiply_four(sum, av, bv);
    }
    UNROLLED
    for (int i = 0; i < TM; ++i) {
        const int m = m0 + i, r = z * M + m;
        if (m >= M) break;
        UNROLLED
        for (int j = 0; j < TN; ++j) {
            const int n = n0 + j * PACK;
            const size_t at = (size_t)r * N + n;
            if (n + PACK <= N) {
                const ACCV out = EPILOGUE(sum[i][j], r, n, batches * M, N);
                STOREV(y, at, out);
            } else {
                for (int l = 0; l < PACK && n + l < N; ++l) {
                    const ACC out = EPILOGUE1(LANE(sum[i][j], l), r, n + l, batches * M, N);
                    STORE(y, at + l, out);
                }
            }
        }
    }
}
