// y[z, m, n] = sum_k (a[z, m, k] - a_zero) (b[z, k, n] - b_zero[n]) of 8-bit integers, exact in int32, four terms at a time
// (integer/dot4.cl). A work-item sums TM rows, MY apart, by TC blocks of four columns; neighbours take adjacent blocks; SPLIT of
// them split the terms and reduce in local memory.
// Needs TRANS_A, TRANS_B (the last two dimensions of that input are stored swapped), B_PACKED (b is uint4[ceil(K / 4),
// ceil(N / 4)], a uint of four terms for each column, zeros past the last), ALIGNED (4 | K and a is stored by rows: words of a
// can be read), A_ZERO (in memory), B_ZERO (0 none, 1 one for all columns, 2 one for each), HAS_START (int4[ceil(N / 4)]: what a
// zero point of a adds to the sums of a b that are both known ahead of time), A_SIGNED, B_SIGNED, DOT.
// Grid: ceil(ceil(N / 4) / (NX * TC)) * NX, ceil(M / (MY * TM)) * MY, batches * SPLIT.
#include "integer/dot4.cl"
#include "matmul/batch_offsets.cl"
#include "include/texel_buffer.cl"
#ifndef TM
#define TM 2
#define TC 1
#define NX 32
#define MY 1
#define SPLIT 4
#endif
#if HAS_START
#define START_PARAM global const int4 *restrict start,
#else
#define START_PARAM
#endif
#if A_ZERO
#define A_ZERO_PARAM global const A_BYTE *restrict a_zero,
#else
#define A_ZERO_PARAM
#endif
#if B_ZERO
#define B_ZERO_PARAM global const B_BYTE *restrict b_zero,
#else
#define B_ZERO_PARAM
#endif

#if B_PACKED
#define B_PARAM QUADS(b)
#else
#define B_PARAM global const B_BYTE *restrict b
#endif

static inline uint word_of(uint s0, uint s1, uint s2, uint s3) {
    return (s0 & 0xff) | (s1 & 0xff) << 8 | (s2 & 0xff) << 16 | (s3 & 0xff) << 24;
}

// Terms 4k to 4k + 3 of row m of a; zeros past the last.
static inline uint word_of_a(global const A_BYTE *restrict a, int m, int k, int K, int lda) {
#if ALIGNED
    return *(global const uint *)(a + (size_t)m * lda + 4 * k);
#else
    uint v[4];
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int at = 4 * k + i;
        v[i] = at < K ? (uint)a[TRANS_A ? (size_t)at * lda + m : (size_t)m * lda + at] : 0u;
    }
    return word_of(v[0], v[1], v[2], v[3]);
#endif
}

// The same of columns 4n to 4n + 3 of b.
static inline uint4 words_of_b(global const B_BYTE *restrict b, int k, int n, int K, int N, int ldb) {
    uint v[4][4];
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int row = 4 * k + i, column = 4 * n + j;
            const bool inside = row < K && column < N;
            v[j][i] = inside ? (uint)b[TRANS_B ? (size_t)column * ldb + row : (size_t)row * ldb + column] : 0u;
        }
    }
    return (uint4)(word_of(v[0][0], v[0][1], v[0][2], v[0][3]), word_of(v[1][0], v[1][1], v[1][2], v[1][3]),
                   word_of(v[2][0], v[2][1], v[2][2], v[2][3]), word_of(v[3][0], v[3][1], v[3][2], v[3][3]));
}

__attribute__((reqd_work_group_size(NX, MY, SPLIT)))
kernel void matmul_dot(global const A_BYTE *restrict a, B_PARAM, START_PARAM A_ZERO_PARAM B_ZERO_PARAM
                        global REAL *restrict y, global const int *batch, int dims, int batches, int M, int N,
                       int K, int lda, int ldb EPILOGUE_PARAMS) {
    const int lx = get_local_id(0), ly = get_local_id(1), s = get_local_id(2), z = get_group_id(2);
    const int n0 = get_group_id(0) * NX * TC + lx, m0 = get_group_id(1) * MY * TM + ly;
    const int words = (K + 3) / 4, blocks = (N + 3) / 4;
    size_t a_offset, b_offset;
    batch_offsets(batch, dims, z, &a_offset, &b_offset);
    a += a_offset;
#if !B_PACKED
    b += b_offset;
#endif
    int4 acc[TM][TC], b_sum[TC];
    int a_sum[TM];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        a_sum[i] = 0;
        #pragma unroll
        for (int j = 0; j < TC; ++j) acc[i][j] = (int4)0;
    }
    #pragma unroll
    for (int j = 0; j < TC; ++j) b_sum[j] = (int4)0;
    #pragma unroll TURNS
    for (int k = s; k < words; k += SPLIT) {
        uint v[TM];
        uint4 w[TC];
        #pragma unroll
        for (int i = 0; i < TM; ++i) v[i] = word_of_a(a, min(m0 + i * MY, M - 1), k, K, lda);
        #pragma unroll
        for (int j = 0; j < TC; ++j) {
            const int n = min(n0 + j * NX, blocks - 1);
#if B_PACKED
            w[j] = READ_QUAD(b, (size_t)k * blocks + n);
#else
            w[j] = words_of_b(b, k, n, K, N, ldb);
#endif
#if A_ZERO
            b_sum[j].s0 = DOT4_SUM_B(w[j].s0, b_sum[j].s0);
            b_sum[j].s1 = DOT4_SUM_B(w[j].s1, b_sum[j].s1);
            b_sum[j].s2 = DOT4_SUM_B(w[j].s2, b_sum[j].s2);
            b_sum[j].s3 = DOT4_SUM_B(w[j].s3, b_sum[j].s3);
#endif
        }
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
#if B_ZERO
            a_sum[i] = DOT4_SUM_A(v[i], a_sum[i]);
#endif
            #pragma unroll
            for (int j = 0; j < TC; ++j) {
                acc[i][j].s0 = DOT4(v[i], w[j].s0, acc[i][j].s0);
                acc[i][j].s1 = DOT4(v[i], w[j].s1, acc[i][j].s1);
                acc[i][j].s2 = DOT4(v[i], w[j].s2, acc[i][j].s2);
                acc[i][j].s3 = DOT4(v[i], w[j].s3, acc[i][j].s3);
            }
        }
    }
#if A_ZERO
    const int zero = a_zero[0];
#else
    const int zero = 0;
#endif
    #pragma unroll
    for (int j = 0; j < TC; ++j) {
        int4 less = (int4)0;
#if B_ZERO
        const int column = 4 * (n0 + j * NX);
        less = (int4)(b_zero[B_ZERO == 2 ? min(column, N - 1) : 0], b_zero[B_ZERO == 2 ? min(column + 1, N - 1) : 0],
                      b_zero[B_ZERO == 2 ? min(column + 2, N - 1) : 0], b_zero[B_ZERO == 2 ? min(column + 3, N - 1) : 0]);
#endif
        // Of the K terms zero * less, the first of those that split them adds all.
        int4 all = s == 0 ? K * zero * less : (int4)0;
#if HAS_START
        if (s == 0) all += start[min(n0 + j * NX, blocks - 1)];
#endif
        #pragma unroll
        for (int i = 0; i < TM; ++i) acc[i][j] += all - zero * b_sum[j] - less * a_sum[i];
    }
#if SPLIT > 1
    local int4 parts[SPLIT - 1][TM * TC][MY][NX];
    if (s > 0) {
        #pragma unroll
        for (int i = 0; i < TM * TC; ++i) parts[s - 1][i][ly][lx] = acc[i / TC][i % TC];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (s > 0) return;
    #pragma unroll
    for (int p = 0; p < SPLIT - 1; ++p) {
        #pragma unroll
        for (int i = 0; i < TM * TC; ++i) acc[i / TC][i % TC] += parts[p][i][ly][lx];
    }
#endif
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        const int m = m0 + i * MY, r = z * M + m;
        if (m >= M) break;
        #pragma unroll
        for (int j = 0; j < TC; ++j) {
            const int n = (n0 + j * NX) * PACK;
            const size_t at = (size_t)r * N + n;
            if (n + PACK <= N) {
                const ACCV out = EPILOGUE(acc[i][j], r, n, batches * M, N);
                STOREV(y, at, out);
            } else {
                int lanes[PACK];
                vstore4(acc[i][j], 0, lanes);
                for (int l = 0; l < PACK && n + l < N; ++l) {
                    const ACC out = EPILOGUE1(lanes[l], r, n + l, batches * M, N);
                    STORE(y, at + l, out);
                }
            }
        }
    }
}
