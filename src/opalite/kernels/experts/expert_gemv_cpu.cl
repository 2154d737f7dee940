// y[slot, n] = x[slot / each, :] w[expert N + n, :] + bias, on CPUs: bound by reading w, of selected experts only.
// A work-item owns a panel of WIDTH = NV * PACK columns of one expert and takes its slots MR at a time, for which it reads, and
// dequantises, the panel once. Grid: (panels that an expert touches, slots, or experts where SORTED), work-groups of one work-item.
//   MR   rows of a tile     NV   vectors of a panel
//   KS   separate sums for adjacent k, to hide the latency of multiply-add where there are few rows
#ifndef MR
#define MR 1
#define NV 4
#define KS 2
#endif
#define WIDTH (NV * PACK)
#include "experts/expert_weight_panels.cl"
#define LONGEST 256 // terms of a sum: longer ones are added up, which loses fewer digits
#if BITS
#include "quantized/gemv_accumulate_words.cl"
#else
#include "include/prefetch.cl"
#define FLOATS VEC_T(float, PACK)
#endif

__attribute__((reqd_work_group_size(1, 1, 1)))
kernel void expert_rows(global const REAL *restrict x, SLOTS_PARAM WEIGHTS_PARAM BIAS_PARAM global REAL *restrict y, int slots,
                        int N, int K, int each, int experts EPILOGUE_PARAMS) {
    TAKE_SLOTS((int)get_global_id(1), slots)
    const int panel = expert * N / WIDTH + get_global_id(0), column = panel * WIDTH;
    const int low = max(column, expert * N), high = min(column + WIDTH, (expert + 1) * N);
    if (low >= high) return;
#if BITS
    const size_t scales = (size_t)panel * ((K + block - 1) / block) * WIDTH;
    global const uint *const panel_b = b + PANEL_AT(panel, (K + PER - 1) / PER);
#else
    global const REAL *const panel_b = b + (size_t)panel * K * WIDTH;
    const int block = LONGEST;
#endif
    #pragma unroll 1
    for (int m0 = first; m0 < last; m0 += MR) {
        global const REAL *x_row[MR];
        FLOATS total[MR][NV];
        #pragma unroll
        for (int i = 0; i < MR; ++i) {
            // Rows past the end repeat the last one and are not stored.
            x_row[i] = x + (size_t)(SLOT(min(m0 + i, last - 1)) / each) * K;
            #pragma unroll
            for (int v = 0; v < NV; ++v) total[i][v] = (FLOATS)0;
        }
        #pragma unroll 1
        for (int k0 = 0, k1; k0 < K; k0 = k1) {
            const int at_block = k0 / block;
            k1 = min(K, min(k0 + LONGEST, (at_block + 1) * block));
            FLOATS sum[KS][MR][NV];
            #pragma unroll
            for (int s = 0; s < KS; ++s)
                #pragma unroll
                for (int i = 0; i < MR * NV; ++i) sum[s][i / NV][i % NV] = (FLOATS)0;
            int k = k0;
#if BITS
            const size_t at = scales + (size_t)at_block * WIDTH;
            global const uint *from = panel_b + (size_t)(k0 / PER) * WIDTH;
            SUM_WORDS(sum, x_row, from, k, k1)
            float sums[MR];
            #pragma unroll
            for (int i = 0; i < MR; ++i) sums[i] = sum_of(x_row[i] + k0, k1 - k0);
#else
            global const REAL *from = panel_b + (size_t)k0 * WIDTH;
            #pragma unroll 1
            for (; k < k1; k += KS) {
                #pragma unroll
                for (int s = 0; s < KS; ++s) {
                    if (k + s >= k1) break;
                    FLOATS wide[NV];
                    #pragma unroll
                    for (int v = 0; v < NV; ++v) {
                        wide[v] = LOADV(from, s * WIDTH + v * PACK);
                        PREFETCH(from + s * WIDTH + v * PACK + 4096 / sizeof(REAL));
                    }
                    #pragma unroll
                    for (int i = 0; i < MR; ++i) {
                        const FLOATS xv = (FLOATS)LOAD(x_row[i], k + s);
                        #pragma unroll
                        for (int v = 0; v < NV; ++v) sum[s][i][v] += xv * wide[v];
                    }
                }
                from += KS * WIDTH;
            }
#endif
            #pragma unroll
            for (int v = 0; v < NV; ++v) {
#if BITS
                const FLOATS by = LOAD_SCALE(PACK, scale, at + v * PACK) * STEP, less = MIDDLE(PACK, at + v * PACK);
#endif
                #pragma unroll
                for (int i = 0; i < MR; ++i) {
                    #pragma unroll
                    for (int s = 1; s < KS; ++s) sum[0][i][v] += sum[s][i][v];
#if BITS
                    total[i][v] += by * (sum[0][i][v] - less * sums[i]);
#else
                    total[i][v] += sum[0][i][v];
#endif
                }
            }
        }
        #pragma unroll 1
        for (int i = 0; i < MR && m0 + i < last; ++i) {
            const int r = SLOT(m0 + i);
            const float *results = (const float *)total[i];
            STORE_ROW(results, r)
        }
    }
}
