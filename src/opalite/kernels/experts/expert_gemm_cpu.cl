// y[slot, n] = x[slot / each, :] w[expert N + n, :] + bias for many slots and few bits, on CPUs.
// A work-item owns a panel of WIDTH = NV * PACK columns of one expert, and all of its slots in tiles of MR
// (quantized/gemm_accumulate_dequantized.cl).
// Grid: (panels that an expert touches, experts), work-groups of one work-item.
#ifndef MR
#define MR 6
#define NV 4
#define BITS 4
#define ZEROS 0
#define HALF_SCALES 0
#define SORTED 1
#endif
#define WIDTH (NV * PACK)
#include "experts/expert_weight_panels.cl"
#include "include/prefetch.cl"
#include "quantized/gemm_accumulate_dequantized.cl"

__attribute__((reqd_work_group_size(1, 1, 1)))
kernel void expert_panel(global const REAL *restrict x, SLOTS_PARAM WEIGHTS_PARAM BIAS_PARAM global REAL *restrict y, int slots,
                         int N, int K, int each, int experts EPILOGUE_PARAMS) {
    TAKE_SLOTS((int)get_global_id(1), slots)
    const int panel = expert * N / WIDTH + get_global_id(0), column = panel * WIDTH;
    const int low = max(column, expert * N), high = min(column + WIDTH, (expert + 1) * N);
    if (low >= high) return;
    const size_t scales = (size_t)panel * ((K + block - 1) / block) * WIDTH;
    FLOATS wide[CHUNK][NV];
    FLOATS kept[GROUP][MR][NV];
    #pragma unroll 1
    for (int m0 = first; m0 < last; m0 += GROUP * MR) {
        const int end = min(last, m0 + GROUP * MR), tiles = (end - m0 + MR - 1) / MR;
        global const uint *from = b + PANEL_AT(panel, (K + PER - 1) / PER);
        #pragma unroll 1
        for (int k0 = 0; k0 < K; k0 += CHUNK) {
            const int count = min(K - k0, CHUNK);
            WIDEN_CHUNK(wide, from, scales, k0, count)
            #pragma unroll 1
            for (int t = 0; t < tiles; ++t) {
                global const REAL *x_row[MR];
                // Rows past the end repeat the last one and are not stored.
                #pragma unroll
                for (int i = 0; i < MR; ++i) x_row[i] = x + (size_t)(SLOT(min(m0 + t * MR + i, end - 1)) / each) * K + k0;
                add_tile(kept[t], x_row, wide, count, k0 == 0);
            }
        }
        #pragma unroll 1
        for (int m = m0; m < end; ++m) {
            const int r = SLOT(m);
            const float *results = (const float *)kept + (m - m0) * WIDTH;
            STORE_ROW(results, r)
        }
    }
}
