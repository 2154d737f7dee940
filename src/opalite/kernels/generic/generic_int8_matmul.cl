// y[m, n] = sum_k (a[m, k] - a_zero) (b[k, n] - b_zero[n]) of 8-bit integers, exact in int32: b in the panels of
// integer/matmul_vnni.cl. flip: 0x80 where a is signed, else 0. has_a_zero, has_b_zero: whether there are such.
//   WIDTH   columns of a panel
#include "include/no_inline.cl"
#include "include/dot4_bytes.cl"
#ifndef WIDTH
#define WIDTH 64
#endif
#define ROWS 4

// ROWS rows by PACK columns from `first` on.
static void multiply(int first, int m0, global const uchar *restrict a, global const uint *restrict b,
                     global const int *restrict column_sums, global const uchar *restrict a_zero,
                     global const int *restrict b_zero, global int *restrict y, int M, int N, int K, int flip,
                     int has_a_zero, int has_b_zero) {
    COMPILED_ONCE(M)
    const int words = (K + 3) / 4;
    if (first >= N || m0 >= M) return;
    INTS sum[ROWS], row_sum[ROWS];
    global const uchar *row[ROWS];
    #pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        sum[i] = row_sum[i] = (INTS)0;
        row[i] = a + (size_t)min(m0 + i, M - 1) * K;
    }
    b += (size_t)(first / WIDTH) * words * WIDTH + first % WIDTH;
    #pragma nounroll
    for (int k = 0; k < K; k += 4, b += WIDTH) {
        const WORDS numbers = VLOAD(PACK, 0, b);
        const int count = min(4, K - k);
        #pragma unroll
        for (int i = 0; i < ROWS; ++i) {
            uint word = 0;
            #pragma nounroll
            for (int j = 0; j < count; ++j) word |= (uint)(row[i][k + j] ^ (uchar)flip) << (8 * j);
            sum[i] = dot_fours(sum[i], (WORDS)word, numbers);
            row_sum[i] = dot_fours(row_sum[i], (WORDS)word, (WORDS)0x01010101u);
        }
    }
    const int zero = (has_a_zero ? (flip ? (int)(char)a_zero[0] : (int)a_zero[0]) : 0) + flip;
    const INTS less = zero * VLOAD(PACK, 0, column_sums + first);
    const INTS own = has_b_zero ? VLOAD(PACK, 0, b_zero + first) : (INTS)0;
    const int columns = min(PACK, N - first);
    #pragma nounroll
    for (int i = 0; i < ROWS && m0 + i < M; ++i) {
        const INTS found = sum[i] - less - own * (row_sum[i] - K * zero);
        #pragma nounroll
        for (int c = 0; c < columns; ++c) y[(size_t)(m0 + i) * N + first + c] = ((const int *)&found)[c];
    }
}

// Grid: (ceil(N / WIDTH) * WIDTH / PACK, ceil(M / ROWS)).
kernel void multiply_bytes(global const uchar *restrict a, global const uint *restrict b,
                           global const int *restrict column_sums, global const uchar *restrict a_zero,
                           global const int *restrict b_zero, global int *restrict y, int M, int N, int K, int flip,
                           int has_a_zero, int has_b_zero) {
    multiply(get_global_id(0) * PACK, get_global_id(1) * ROWS, a, b, column_sums, a_zero, b_zero, y, M, N, K, flip,
             has_a_zero, has_b_zero);
}
