// dequant_gemv_cpu.cl with activations quantised by quantize_activations.cl: for few rows, bound by reading b.
// A work-item owns a panel of WIDTH = NV * PACK columns and MR rows. It unpacks each word of b to bytes in registers, once for
// all rows. A block is a whole number of groups, `groups` of them. zero: the zero point of all, where there is one (ZEROS 0).
// Grid: (ceil(N / WIDTH), ceil(M / MR)), work-groups of one work-item.
#include "quantized/dot_low_bit_int8.cl"
#include "include/prefetch.cl"
#ifndef MR
#define MR 1
#define NV 4
#endif
#define WIDTH (NV * PACK)
// The zero-point correction is added once, in the first run of a group. Rows past the end count as zeros, and are not stored.
#define IS_FIRST (RUN == MOST_WORDS || w0 == 0)
#define MIDDLE_OF(i) (ZEROS || !IS_FIRST ? 0 : -zero * sums[rows[i]])
#define AHEAD (64 * 16) // words: a page

__attribute__((reqd_work_group_size(1, 1, 1)))
kernel void bytes_rows(global const uint *restrict q, global const float *restrict by, global const int *restrict sums,
                       global const uint *restrict b, global const SCALE *restrict scale, ZEROS_PARAM
                       global REAL *restrict y, int M, int N, int K, int stride, int group, int groups, int zero EPILOGUE_PARAMS) {
    const int panel = get_global_id(0), m0 = get_global_id(1) * MR;
    if (panel * WIDTH >= N || m0 >= M) return;
    const int room = (group + 15) / 16 * 4, blocks = ((K + group - 1) / group + groups - 1) / groups;
    const size_t scales = (size_t)panel * blocks * WIDTH;
    b += (size_t)panel * ((K + PER - 1) / PER) * WIDTH;
    FLOATS total[MR][NV];
    #pragma unroll
    for (int i = 0; i < MR * NV; ++i) total[i / NV][i % NV] = (FLOATS)0;
    #pragma unroll 1
    for (int k0 = 0, g = 0; k0 < K; k0 += group, ++g) {
        const int words = (min(K - k0, group) + PER - 1) / PER;
        const size_t at = scales + (size_t)(g / groups) * WIDTH;
        size_t rows[MR];
        #pragma unroll
        for (int i = 0; i < MR; ++i) rows[i] = (size_t)g * stride + m0 + i;
        int w0 = 0;
        do {
            SUMS sum[MR][NV];
            #pragma unroll
            for (int i = 0; i < MR * NV; ++i)
                sum[i / NV][i % NV] = BEGIN(MIDDLE_OF(i / NV));
            const int w1 = min(words, w0 + RUN / FOURS);
            #pragma unroll 1
            for (int w = w0; w < w1; ++w) {
                #pragma unroll
                for (int v = 0; v < NV; ++v) {
                    const WORDS numbers = LOAD_AT(uint, PACK, b + v * PACK);
                    PREFETCH(b + v * PACK + AHEAD);
                    #pragma unroll
                    for (int j = 0; j < FOURS; ++j) {
                        #pragma unroll
                        for (int i = 0; i < MR; ++i)
                            sum[i][v] = DOT(sum[i][v], BYTES(numbers, j), q[rows[i] * room + w * FOURS + j]);
                    }
                }
                b += WIDTH;
            }
            #pragma unroll
            for (int v = 0; v < NV; ++v) {
                const FLOATS b_by = LOAD_SCALE(PACK, scale, at + v * PACK), b_zero = ZERO(PACK, at + v * PACK);
                #pragma unroll
                for (int i = 0; i < MR; ++i) {
                    FLOATS found = CONVERT_N(PACK, float)(TOTAL(sum[i][v], MIDDLE_OF(i)));
                    if (ZEROS) found -= IS_FIRST ? b_zero * (float)sums[rows[i]] : (FLOATS)0;
                    total[i][v] += found * b_by * by[rows[i]];
                }
            }
            w0 += RUN / FOURS;
        } while (RUN < MOST_WORDS && w0 < words);
    }
    // In one loop, so that the epilogue is compiled once and not for each vector.
    const int low = panel * WIDTH, high = min(N, low + WIDTH);
    #pragma unroll 1
    for (int i = 0; i < MR && m0 + i < M; ++i) {
        const int r = m0 + i;
        const float *results = (const float *)total[i];
#include "quantized/store_row_columns.cl"
    }
}
