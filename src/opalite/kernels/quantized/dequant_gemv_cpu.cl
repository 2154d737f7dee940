// y[m, n] = sum_k a[m, k] (b[k, n] - zero[n, k / block]) scale[n, k / block] for few rows, on CPUs: bound by reading b.
// A work-item owns a panel of WIDTH = NV * PACK columns and MR rows. It dequantises each word of b in registers, once for all rows.
// Blocks begin at words. Grid: (ceil(N / WIDTH), ceil(M / MR)), work-groups of one work-item.
//   MR   rows of a work-item     NV   vectors of a panel
//   KS   separate sums for adjacent k, to hide the latency of multiply-add where there are few rows
#include "quantized/unpack_low_bit.cl"
#ifndef MR
#define MR 1
#define NV 4
#define KS 2
#endif
#define WIDTH (NV * PACK)
#define LONGEST 256 // terms of a sum: of longer blocks, sums are added up, which loses fewer digits
#include "quantized/gemv_accumulate_words.cl"

__attribute__((reqd_work_group_size(1, 1, 1)))
kernel void quantized_rows(global const REAL *restrict a, global const uint *restrict b, global const SCALE *restrict scale,
                           ZEROS_PARAM global REAL *restrict y, int M, int N, int K, int block, float middle EPILOGUE_PARAMS) {
    const int panel = get_global_id(0), m0 = get_global_id(1) * MR;
    if (panel * WIDTH >= N || m0 >= M) return;
    const size_t scales = (size_t)panel * ((K + block - 1) / block) * WIDTH;
    b += (size_t)panel * ((K + PER - 1) / PER) * WIDTH;
    global const REAL *a_row[MR];
    FLOATS total[MR][NV];
    #pragma unroll
    for (int i = 0; i < MR; ++i) {
        a_row[i] = a + (size_t)min(m0 + i, M - 1) * K;
        #pragma unroll
        for (int v = 0; v < NV; ++v) total[i][v] = (FLOATS)0;
    }
    #pragma unroll 1
    for (int k0 = 0, k1; k0 < K; k0 = k1) {
        const int at_block = k0 / block;
        const size_t at = scales + (size_t)at_block * WIDTH;
        k1 = min(K, min(k0 + LONGEST, (at_block + 1) * block));
        FLOATS sum[KS][MR][NV];
        #pragma unroll
        for (int s = 0; s < KS; ++s)
            #pragma unroll
            for (int i = 0; i < MR * NV; ++i) sum[s][i / NV][i % NV] = (FLOATS)0;
        int k = k0;
        SUM_WORDS(sum, a_row, b, k, k1)
#if !TABLE
        float sums[MR];
        #pragma unroll
        for (int i = 0; i < MR; ++i) sums[i] = sum_of(a_row[i] + k0, k1 - k0);
#endif
        #pragma unroll
        for (int v = 0; v < NV; ++v) {
            const FLOATS by = LOAD_SCALE(PACK, scale, at + v * PACK) * STEP, less = MIDDLE(PACK, at + v * PACK);
            #pragma unroll
            for (int i = 0; i < MR; ++i) {
                #pragma unroll
                for (int s = 1; s < KS; ++s) sum[0][i][v] += sum[s][i][v];
#if TABLE
                total[i][v] += by * sum[0][i][v];
#else
                total[i][v] += by * (sum[0][i][v] - less * sums[i]);
#endif
            }
        }
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
