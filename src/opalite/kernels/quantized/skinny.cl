// y[m, n] = sum_k a[m, k] (b[k, n] - zero[n, k / block]) scale[n, k / block] for few rows, on GPUs.
// A work-group of WIDTH x PARTS work-items owns a panel of WIDTH columns and MR rows: neighbours read neighbouring words of b,
// PARTS of them share out the words of a column, and their sums meet in local memory.
// Grid: (WIDTH * ceil(N / WIDTH), PARTS, ceil(M / MR)).
#include "quantized/unpack.cl"
#ifndef MR
#define MR 1
#define WIDTH 32
#define PARTS 8
#endif

__attribute__((reqd_work_group_size(WIDTH, PARTS, 1)))
kernel void quantized_skinny(global const REAL *restrict a, global const uint *restrict b, global const SCALE *restrict scale,
                             ZEROS_PARAM global REAL *restrict y, int M, int N, int K, int block,
                             float middle EPILOGUE_PARAMS) {
    local float part[MR][PARTS][WIDTH + 1];
    const int lane = get_local_id(0), own = get_local_id(1), panel = get_group_id(0), m0 = get_group_id(2) * MR;
    const int words = (K + PER - 1) / PER, blocks = (K + block - 1) / block;
    b += (size_t)panel * words * WIDTH + lane;
    float sum[MR];
    #pragma unroll
    for (int i = 0; i < MR; ++i) sum[i] = 0;
    for (int w = own; w < words; w += PARTS) {
        const size_t at = ((size_t)panel * blocks + w * PER / block) * WIDTH + lane;
        const uint numbers = b[(size_t)w * WIDTH];
        const float by = LOAD_SCALE(1, scale, at) * LEVELS, less = MIDDLE(1, at);
        #pragma unroll
        for (int j = 0; j < PER; ++j) {
            const int k = min(w * PER + j, K - 1);
            const float wide = w * PER + j < K ? (UNPACK(1, numbers, j) - less) * by : 0.0f;
            #pragma unroll
            for (int i = 0; i < MR; ++i) sum[i] += LOAD(a, (size_t)min(m0 + i, M - 1) * K + k) * wide;
        }
    }
    #pragma unroll
    for (int i = 0; i < MR; ++i) part[i][own][lane] = sum[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int left = PARTS / 2; left > 0; left /= 2) {
        if (own < left)
            #pragma unroll
            for (int i = 0; i < MR; ++i) part[i][own][lane] += part[i][own + left][lane];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    const int n = panel * WIDTH + lane;
    if (n >= N) return;
    for (int i = own; i < MR && m0 + i < M; i += PARTS) {
        const ACC out = EPILOGUE1(part[i][0][lane], m0 + i, n, M, N);
        STORE(y, (size_t)(m0 + i) * N + n, out);
    }
}
