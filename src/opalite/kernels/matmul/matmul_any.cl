// y[z, m, n] = sum_k a[z, m, k] b[z, k, n] for any sizes, types and strides: the fallback.
// One work-item computes PACK columns of one row. Grid: (ceil(N / PACK), M, batches), may be rounded up.
//   TRANS_A, TRANS_B   the last two dimensions of that input are stored swapped
#include "matmul/batch_offsets.cl"
#include "include/reduce_lanes.cl"
#include "include/sum_block.cl"
#ifndef TRANS_A
#define TRANS_A 0
#endif
#ifndef TRANS_B
#define TRANS_B 0
#endif
#define A(k) LOAD(a, TRANS_A ? (size_t)(k) * lda + m : (size_t)m * lda + (k))

// A row times a single column is reduced from PACK partial sums if both are contiguous along k.
static inline ACC one_column(global const REAL *a, global const REAL *b, int m, int n, int K, int lda, int ldb) {
    ACC sum = 0;
    int k = 0;
#if TRANS_B && !TRANS_A
    ACCV all = (ACCV)0;
    while (k + PACK <= K) {
        ACCV part = (ACCV)0;
        for (const int end = min(K - PACK, k + SUM_BLOCK * PACK - PACK); k <= end; k += PACK)
            part += LOADV(a, (size_t)m * lda + k) * LOADV(b, (size_t)n * ldb + k);
        all += part;
    }
    sum = SUM_LANES(all);
#endif
    while (k < K) {
        ACC part = 0;
        for (const int end = min(K, k + SUM_BLOCK); k < end; ++k)
            part += A(k) * LOAD(b, TRANS_B ? (size_t)n * ldb + k : (size_t)k * ldb + n);
        sum += part;
    }
    return sum;
}

kernel void matmul_flat(global const REAL *a, global const REAL *b, global REAL *y, global const int *batch, int dims,
                        int batches, int M, int N, int K, int lda, int ldb EPILOGUE_PARAMS) {
    const int n0 = get_global_id(0) * PACK, m = get_global_id(1), z = get_global_id(2);
    if (n0 >= N || m >= M || z >= batches) return;
    size_t a_offset, b_offset;
    batch_offsets(batch, dims, z, &a_offset, &b_offset);
    a += a_offset;
    b += b_offset;
    const int r = z * M + m;
    y += (size_t)r * N;
#if !TRANS_B
    if (n0 + PACK <= N) {
        ACCV sum = (ACCV)0;
        for (int k = 0; k < K;) {
            ACCV part = (ACCV)0;
            for (const int end = min(K, k + SUM_BLOCK); k < end; ++k) part += A(k) * LOADV(b, (size_t)k * ldb + n0);
            sum += part;
        }
        sum = EPILOGUE(sum, r, n0, batches * M, N);
        STOREV(y, n0, sum);
        return;
    }
#endif
    for (int n = n0; n < min(n0 + PACK, N); ++n) {
        const ACC sum = one_column(a, b, m, n, K, lda, ldb);
        STORE(y, n, EPILOGUE1(sum, r, n, batches * M, N));
    }
}
