// y[m, n] = sum_k (a[m, k] - a_zero) (b[k, n] - b_zero[n]) of 8-bit integers, exact in int32: b in the panels of
// integer/matmul_vnni.cl. flip: 0x80 where a is signed, else 0. has_a_zero, has_b_zero: whether there are such.
//   WIDTH   columns of a panel
#include "include/no_inline.cl"
#include "include/dot4_bytes.cl"
#ifndef WIDTH
#define WIDTH 64
#endif
#define ROWS 4

#define VECTORS 2

// Four bytes of a row from k on, of which `count` are there.
static inline uint word_at(global const uchar *row, int k, int count, uint flips) {
    if (count >= 4) return as_uint(VLOAD_AT(uchar, 4, row + k)) ^ flips;
    uint word = 0;
    #pragma nounroll
    for (int j = 0; j < count; ++j) word |= (uint)row[k + j] << (8 * j);
    return word ^ flips >> (8 * (4 - count));
}

// ROWS rows by VECTORS * PACK columns from `first` on.
static void multiply(int first, int m0, global const uchar *restrict a, global const uint *restrict b,
                     global const int *restrict column_sums, global const uchar *restrict a_zero,
                     global const int *restrict b_zero, global int *restrict y, int M, int N, int K, int flip,
                     int has_a_zero, int has_b_zero) {
    COMPILED_ONCE(M)
    const int words = (K + 3) / 4;
    if (first >= N || m0 >= M) return;
    const uint flips = flip * 0x01010101u;
    INTS sum[ROWS][VECTORS];
    int row_sum[ROWS];
    global const uchar *row[ROWS];
    #pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        #pragma unroll
        for (int v = 0; v < VECTORS; ++v) sum[i][v] = (INTS)0;
        row[i] = a + (size_t)min(m0 + i, M - 1) * K;
        row_sum[i] = 0;
        #pragma nounroll
        for (int k = 0; has_b_zero && k < K; ++k) row_sum[i] += row[i][k] ^ flip;
    }
    b += (size_t)(first / WIDTH) * words * WIDTH + first % WIDTH;
    #pragma nounroll
    for (int k = 0; k + 4 <= K; k += 4, b += WIDTH) {
        #pragma unroll
        for (int i = 0; i < ROWS; ++i) {
            const WORDS word = (WORDS)word_at(row[i], k, 4, flips);
            #pragma unroll
            for (int v = 0; v < VECTORS; ++v)
                sum[i][v] = dot_fours(sum[i][v], word, *(global const words_at *)(b + v * PACK));
        }
    }
    if (K % 4) {
        #pragma unroll
        for (int i = 0; i < ROWS; ++i) {
            const WORDS word = (WORDS)word_at(row[i], K / 4 * 4, K % 4, flips);
            #pragma unroll
            for (int v = 0; v < VECTORS; ++v)
                sum[i][v] = dot_fours(sum[i][v], word, *(global const words_at *)(b + v * PACK));
        }
    }
    const int zero = (has_a_zero ? (flip ? (int)(char)a_zero[0] : (int)a_zero[0]) : 0) + flip;
    #pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        const int begin = first + v * PACK, columns = min(PACK, N - begin);
        if (columns <= 0) break;
        const INTS less = zero * VLOAD(PACK, 0, column_sums + begin);
        const INTS own = has_b_zero ? VLOAD(PACK, 0, b_zero + begin) : (INTS)0;
        #pragma unroll
        for (int i = 0; i < ROWS; ++i) {
            if (m0 + i >= M) break;
            const INTS found = sum[i][v] - less - own * (row_sum[i] - K * zero);
            global int *to = y + (size_t)(m0 + i) * N + begin;
            if (columns == PACK) {
                *(global ints_at *)to = found;
                continue;
            }
            #pragma nounroll
            for (int c = 0; c < columns; ++c) to[c] = ((const int *)&found)[c];
        }
    }
}

// Grid: (ceil(N / WIDTH) * WIDTH / (VECTORS * PACK), ceil(M / ROWS)).
kernel void multiply_bytes(global const uchar *restrict a, global const uint *restrict b,
                           global const int *restrict column_sums, global const uchar *restrict a_zero,
                           global const int *restrict b_zero, global int *restrict y, int M, int N, int K, int flip,
                           int has_a_zero, int has_b_zero) {
    multiply(get_global_id(0) * (VECTORS * PACK), get_global_id(1) * ROWS, a, b, column_sums, a_zero, b_zero, y, M, N, K, flip,
             has_a_zero, has_b_zero);
}
