// y[m, n] = sum_k (a[m, k] - a_zero) (b[k, n] - b_zero[n]) of 8-bit integers, exact in int32, on CPUs: four products to a
// lane's instruction (include/dot4_bytes.cl). b is a constant in panels of WIDTH = NV * PACK columns: word k / 4 of a column
// holds its terms k to k + 3 as signed bytes, zeros past the last. What is stored of the other kind is flipped in its highest
// bit, which shifts it and its zero point alike by 128. A work-item owns a panel and `rows` rows, MR of them at a time.
//   A_SIGNED     a is int8       A_ZERO   it has a zero point, in memory
//   B_ZERO       b_zero holds an int32 for each column of the panels
//   column_sums  sums of the terms of each column of the panels; read where a has a zero point, or is signed
// Grid: (ceil(N / WIDTH), ceil(M / rows)), work-groups of one work-item.
#include "include/dot4_bytes.cl"
#include "include/prefetch.cl"
#ifndef MR
#define MR 6
#define NV 4
#define A_SIGNED 0
#define A_ZERO 0
#define B_ZERO 0
#endif
#define WIDTH (NV * PACK)
#if A_SIGNED
#define A_BYTE char
#define FLIP 0x80808080u
#else
#define A_BYTE uchar
#define FLIP 0u
#endif
#if A_ZERO
#define A_ZERO_PARAM global const A_BYTE *restrict a_zero,
#define OWN_ZERO a_zero[0]
#else
#define A_ZERO_PARAM
#define OWN_ZERO 0
#endif
#if B_ZERO
#define B_ZERO_PARAM global const int *restrict b_zero,
#else
#define B_ZERO_PARAM
#endif
#define AHEAD (64 * 16) // words: a page

typedef uint __attribute__((aligned(1))) word_at; // x86 loads unaligned words; four byte loads would be slower

// Terms k to k + 3 of a row, `count` of them there.
static inline uint word_of(global const A_BYTE *restrict row, int k, int count) {
    if (count >= 4) return *(global const word_at *)(row + k) ^ FLIP;
    uint word = 0;
    for (int j = 0; j < count; ++j) word |= (uint)(uchar)row[k + j] << (8 * j);
    return word ^ FLIP;
}

__attribute__((reqd_work_group_size(1, 1, 1)))
kernel void integer_panel(global const A_BYTE *restrict a, global const uint *restrict b,
                          global const int *restrict column_sums, A_ZERO_PARAM B_ZERO_PARAM global REAL *restrict y, int M,
                          int N, int K, int rows EPILOGUE_PARAMS) {
    const int panel = get_global_id(0), first = get_global_id(1) * rows, low = panel * WIDTH;
    if (low >= N || first >= M) return;
    const int end = min(M, first + rows), whole = K / 4, left = K % 4, zero = OWN_ZERO + (A_SIGNED ? 128 : 0);
    b += (size_t)panel * (whole + (left > 0)) * WIDTH;
    for (int m0 = first; m0 < end; m0 += MR) {
        INTS sum[MR][NV];
#if B_ZERO
        INTS row_sum[MR];
#endif
        global const A_BYTE *row[MR];
        #pragma unroll
        for (int i = 0; i < MR; ++i) {
            row[i] = a + (size_t)min(m0 + i, end - 1) * K;
#if B_ZERO
            row_sum[i] = (INTS)0;
#endif
            #pragma unroll
            for (int v = 0; v < NV; ++v) sum[i][v] = (INTS)0;
        }
        global const uint *restrict at = b;
        #pragma unroll 1
        for (int w = 0; w < whole; ++w, at += WIDTH) {
            WORDS numbers[NV];
            #pragma unroll
            for (int v = 0; v < NV; ++v) {
                numbers[v] = VLOAD(PACK, v * PACK, at);
                PREFETCH(at + v * PACK + AHEAD);
            }
            #pragma unroll
            for (int i = 0; i < MR; ++i) {
                const WORDS own = (WORDS)word_of(row[i], 4 * w, 4);
#if B_ZERO
                row_sum[i] = dot_fours(row_sum[i], own, (WORDS)0x01010101u);
#endif
                #pragma unroll
                for (int v = 0; v < NV; ++v) sum[i][v] = dot_fours(sum[i][v], own, numbers[v]);
            }
        }
        if (left > 0) {
            #pragma unroll
            for (int i = 0; i < MR; ++i) {
                // Terms past the last equal the zero point and are multiplied by zeros.
                const WORDS own = (WORDS)word_of(row[i], 4 * whole, left);
#if B_ZERO
                row_sum[i] = dot_fours(row_sum[i], own, (WORDS)(0x01010101u >> (8 * (4 - left))));
#endif
                #pragma unroll
                for (int v = 0; v < NV; ++v) sum[i][v] = dot_fours(sum[i][v], own, VLOAD(PACK, v * PACK, at));
            }
        }
        #pragma unroll
        for (int v = 0; v < NV; ++v) {
            const INTS less = zero == 0 ? (INTS)0 : zero * VLOAD(PACK, v * PACK, column_sums + low);
            #pragma unroll
            for (int i = 0; i < MR; ++i) {
                sum[i][v] -= less;
#if B_ZERO
                sum[i][v] -= VLOAD(PACK, v * PACK, b_zero + low) * (row_sum[i] - K * zero);
#endif
            }
        }
        const int high = min(N, low + WIDTH);
        #pragma unroll 1
        for (int i = 0; i < MR && m0 + i < end; ++i) {
            const int r = m0 + i;
            #pragma unroll 1
            for (int v = 0; v < NV; ++v) {
                const int c = low + v * PACK;
                if (c + PACK <= high) {
                    const ACCV out = EPILOGUE(sum[i][v], r, c, M, N);
                    STOREV(y, (size_t)r * N + c, out);
                } else {
                    for (int l = 0; c + l < high; ++l) {
                        const ACC out = EPILOGUE1(((const int *)&sum[i][v])[l], r, c + l, M, N);
                        STORE(y, (size_t)r * N + c + l, out);
                    }
                }
            }
        }
    }
}
