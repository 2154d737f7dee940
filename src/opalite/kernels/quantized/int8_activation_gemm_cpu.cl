// dequant_gemm_cpu.cl with activations quantised by quantize_activations.cl: sums of integer products, four to an instruction.
// A work-item owns a panel of WIDTH = NV * PACK columns and up to `rows` rows. It unpacks one group of the panel's numbers at a
// time into bytes in the L1 cache, for all tiles of MR rows in turn, whose float sums are kept in between.
// A block is a whole number of groups, `groups` of them. zero: the zero point of all, where there is one (ZEROS 0).
// Grid: (ceil(N / WIDTH), ceil(M / rows)), work-groups of one work-item; rows at most TILES * MR.
#include "quantized/dot_low_bit_int8.cl"
#include "include/prefetch.cl"
#ifndef MR
#define MR 6
#define NV 4
#endif
#define WIDTH (NV * PACK)
#define TILES 24
// The zero-point correction is added once, in the first run of a group.
#define IS_FIRST (RUN == MOST_WORDS || w0 == 0)
#define MIDDLE_OF(i) (ZEROS || !IS_FIRST ? 0 : -zero * q_sum[i])
#define AHEAD (64 * 16) // words: a page

__attribute__((reqd_work_group_size(1, 1, 1)))
kernel void bytes_panel(global const uint *restrict q, global const float *restrict by, global const int *restrict sums,
                        global const uint *restrict b, global const SCALE *restrict scale, ZEROS_PARAM
                        global REAL *restrict y, int M, int N, int K, int stride, int group, int groups, int zero,
                        int rows EPILOGUE_PARAMS) {
    const int panel = get_global_id(0), first = get_global_id(1) * rows;
    if (panel * WIDTH >= N || first >= M) return;
    const int end = min(M, first + rows), tiles = (end - first + MR - 1) / MR, room = (group + 15) / 16 * 4;
    const int blocks = ((K + group - 1) / group + groups - 1) / groups;
    const size_t scales = (size_t)panel * blocks * WIDTH;
    b += (size_t)panel * ((K + PER - 1) / PER) * WIDTH;
    WORDS wide[MOST_WORDS][NV];
    FLOATS kept[TILES][MR][NV];
    #pragma unroll 1
    for (int i = 0; i < tiles * MR; ++i) {
        #pragma unroll
        for (int v = 0; v < NV; ++v) kept[i / MR][i % MR][v] = (FLOATS)0;
    }
    for (int k0 = 0, g = 0; k0 < K; k0 += group, ++g) {
        const int words = (min(K - k0, group) + PER - 1) / PER;
        #pragma unroll 1
        for (int w = 0; w < words; ++w) {
            #pragma unroll
            for (int v = 0; v < NV; ++v) {
                const WORDS numbers = LOAD_AT(uint, PACK, b + v * PACK);
                PREFETCH(b + v * PACK + AHEAD);
                #pragma unroll
                for (int j = 0; j < FOURS; ++j) wide[w * FOURS + j][v] = BYTES(numbers, j);
            }
            b += WIDTH;
        }
        const size_t at = scales + (size_t)(g / groups) * WIDTH, q_rows = (size_t)g * stride + first;
        #pragma unroll 1
        for (int t = 0; t < tiles; ++t) {
            // Rows past the end count as zeros, and are not stored.
            global const uint *restrict q_row = q + (q_rows + t * MR) * room;
            global const float *restrict q_by = by + q_rows + t * MR;
            global const int *restrict q_sum = sums + q_rows + t * MR;
            int w0 = 0;
            do {
                SUMS sum[MR][NV];
                #pragma unroll
                for (int i = 0; i < MR * NV; ++i) sum[i / NV][i % NV] = BEGIN(MIDDLE_OF(i / NV));
                const int w1 = min(words * FOURS, w0 + RUN);
                #pragma unroll 1
                for (int w = w0; w < w1; ++w) {
                    #pragma unroll
                    for (int i = 0; i < MR; ++i) {
                        #pragma unroll
                        for (int v = 0; v < NV; ++v) sum[i][v] = DOT(sum[i][v], wide[w][v], q_row[i * room + w]);
                    }
                }
                #pragma unroll
                for (int v = 0; v < NV; ++v) {
                    const FLOATS b_by = LOAD_SCALE(PACK, scale, at + v * PACK), b_zero = ZERO(PACK, at + v * PACK);
                    #pragma unroll
                    for (int i = 0; i < MR; ++i) {
                        FLOATS found = CONVERT_N(PACK, float)(TOTAL(sum[i][v], MIDDLE_OF(i)));
                        if (ZEROS) found -= IS_FIRST ? b_zero * (float)q_sum[i] : (FLOATS)0;
                        kept[t][i][v] += found * b_by * q_by[i];
                    }
                }
                w0 += RUN;
            } while (RUN < MOST_WORDS && w0 < words * FOURS);
        }
    }
    const int low = panel * WIDTH, high = min(N, low + WIDTH);
    #pragma unroll 1
    for (int r = first; r < end; ++r) {
        const float *results = (const float *)kept + (r - first) * WIDTH;
#include "quantized/store_row_columns.cl"
    }
}
