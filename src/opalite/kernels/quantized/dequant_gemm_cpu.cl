// y[m, n] = sum_k a[m, k] (b[k, n] - zero[n, k / block]) scale[n, k / block] for many rows, on CPUs.
// A work-item owns a panel of WIDTH = NV * PACK columns and up to `rows` rows, in tiles of MR (gemm_accumulate_dequantized.cl).
// Blocks begin at words. Grid: (ceil(N / WIDTH), ceil(M / rows)), work-groups of one work-item; rows at most GROUP * MR.
#include "quantized/unpack_low_bit.cl"
#include "include/prefetch.cl"
#ifndef MR
#define MR 6
#define NV 4
#endif
#define WIDTH (NV * PACK)
#include "quantized/gemm_accumulate_dequantized.cl"

__attribute__((reqd_work_group_size(1, 1, 1)))
kernel void quantized_panel(global const REAL *restrict a, global const uint *restrict b, global const SCALE *restrict scale,
                            ZEROS_PARAM global REAL *restrict y, int M, int N, int K, int block, float middle,
                            int rows EPILOGUE_PARAMS) {
    const int panel = get_global_id(0), first = get_global_id(1) * rows;
    if (panel * WIDTH >= N || first >= M) return;
    const int end = min(M, first + rows), tiles = (end - first + MR - 1) / MR;
    const size_t scales = (size_t)panel * ((K + block - 1) / block) * WIDTH;
    b += (size_t)panel * ((K + PER - 1) / PER) * WIDTH;
    FLOATS wide[CHUNK][NV];
    FLOATS kept[GROUP][MR][NV];
    for (int k0 = 0; k0 < K; k0 += CHUNK) {
        const int count = min(K - k0, CHUNK);
        WIDEN_CHUNK(wide, b, scales, k0, count)
        #pragma unroll 1
        for (int t = 0; t < tiles; ++t) {
            global const REAL *a_row[MR];
            // Rows past the end repeat the last one and are not stored.
            #pragma unroll
            for (int i = 0; i < MR; ++i) a_row[i] = a + (size_t)min(first + t * MR + i, end - 1) * K + k0;
            add_tile(kept[t], a_row, wide, count, k0 == 0);
        }
    }
    const int low = panel * WIDTH, high = min(N, low + WIDTH);
    #pragma unroll 1
    for (int r = first; r < end; ++r) {
        const float *results = (const float *)kept + (r - first) * WIDTH;
#include "quantized/store_row_columns.cl"
    }
}
