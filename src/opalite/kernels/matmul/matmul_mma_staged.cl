// y[r, c] = sum over k of a[r, k] b[k, c] for halves and constant b on matrix units: see mma/staged_tile.cl for the tiles.
// K is a multiple of 8, N of 4. `turns` stages cover K. Work-group: 32 * PW * NW * SPLIT work-items. Grid: (row tiles *
// group size, column tiles).
//   NORMALIZED   1: the rows of a are normalised first, (a - mean) / sqrt(variance + epsilon). That is applied to the sums:
//                sum_k (a_k - mean) b_kc = sum_k a_k b_kc - mean * column_sums[c]. Mean and variance come from the stages
//                that are multiplied; the variance, as mean of squares less square of the mean in float, is good to what storing
//                a in halves leaves of it.
#ifndef NORMALIZED
#define NORMALIZED 0
#endif
#if NORMALIZED
#define SEEN(a, turn) SOME_WARPS((turn) % NW == WARP_N) add_rows(row_sums, a, (turn) % NW == WARP_N, units_)
#endif
#include "include/aligned_blocks.cl"
#include "mma/staged_tile.cl"

// Rows of a slab are consecutive, 64 bytes each, so that lanes reading 16 bytes have no bank conflicts.
static inline void copy_rows(local uint4 *stage, global const REAL *a, int rows, int k, int turn, UNITS_PARAM) {
    UNROLLED
    for (int e0 = 0; e0 < INPUT_STAGE; e0 += GROUP) {
        const int e = e0 + get_local_id(0), row = get_group_id(0) * BM + e / 4 % BM;
        const int first = (turn * SL + e / (4 * BM)) * 32 + e % 4 * 8;
        const bool exists = row < rows && first < k;
        if (INPUT_STAGE % GROUP == 0 || e < INPUT_STAGE)
            COPY(16, stage + e, a + (exists ? (size_t)row * k + first : 0), exists);
    }
}
#define COPY_INPUT(stage, turn) copy_rows(stage, a, rows, k, turn, units_)
#define INPUT(stage, u, position) ((stage)[((u) * BM + (position)) * 4 + LANE % 4])

#if NORMALIZED
// Of 16 rows a tile: their products with ones, with the first and with the last eight of themselves, as mma leaves them.
typedef float RowSums[WM][3][4];

// Warps along the columns read the same rows: each sums every NW-th stage.
static inline void add_rows(RowSums sums, const uint4 a[WM][2], bool mine, UNITS_PARAM) {
    const uint ones = 0x3c003c00;
    UNROLLED
    for (int i = 0; i < WM; ++i) {
        const uint4 p = mine ? a[i][0] : (uint4)(0), q = mine ? a[i][1] : (uint4)(0);
        MULTIPLY(sums[i][0], p.x, q.x, p.y, q.y, ones, ones);
        MULTIPLY(sums[i][1], p.x, q.x, p.y, q.y, p.x, p.y);
        MULTIPLY(sums[i][2], p.x, q.x, p.y, q.y, q.x, q.y);
        MULTIPLY(sums[i][0], p.z, q.z, p.w, q.w, ones, ones);
        MULTIPLY(sums[i][1], p.z, q.z, p.w, q.w, p.z, p.w);
        MULTIPLY(sums[i][2], p.z, q.z, p.w, q.w, q.z, q.w);
    }
}

// Mean and factor of row i of the group, at the end of the stages' memory, after the partial sums that STORE_ALL shares.
#define ROW_NORMS ((local float2 *)(stages + STAGES * STAGE) - BM)

static inline void find_norms(RowSums sums, local uint4 *stages, int k, float epsilon) {
    local float2 *parts = (local float2 *)stages, *norms = ROW_NORMS;
    barrier(CLK_LOCAL_MEM_FENCE);
    const int row = LANE / 4;
    if (LANE % 4 == row / 2) {  // the lane with the square of its row, on the diagonal
        UNROLLED
        for (int i = 0; i < WM; ++i) {
            local float2 *to = parts + (WARP_K * NW + WARP_N) * BM + (WARP_P * WM + i) * 16 + row;
            to[0] = (float2)(sums[i][0][0], row % 2 ? sums[i][1][1] : sums[i][1][0]);
            to[8] = (float2)(sums[i][0][2], row % 2 ? sums[i][2][3] : sums[i][2][2]);
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int row = get_local_id(0); row < BM; row += GROUP) {
        float2 all = parts[row];
        for (int i = 1; i < NW * SPLIT; ++i) all += parts[i * BM + row];
        const float mean = all.x / k, variance = fmax(all.y / k - mean * mean, 0.0f);
        norms[row] = (float2)(mean, 1.0f / sqrt(variance + epsilon));
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}
#define NORM_PARAMS , global const float *restrict column_sums, float epsilon
#define NORMAL(v, r, c) \
    (((v) - norms[(r) - get_group_id(0) * BM].x * vload4(0, column_sums + (c))) * norms[(r) - get_group_id(0) * BM].y)
#define NORMS_PARAM , local const float2 *norms, global const float *restrict column_sums
#define NORMS_ARG , ROW_NORMS, column_sums
#else
#define NORM_PARAMS
#define NORMAL(v, r, c) (v)
#define NORMS_PARAM
#define NORMS_ARG
#endif

static inline float4 finish(float4 v, int r, int c, int rows, int columns NORMS_PARAM EPILOGUE_PARAMS) {
    c = min(c, columns - 4);
    v = NORMAL(v, r, c);
    r = min(r, rows - 1);
    return EPILOGUE(v, r, c, rows, columns);
}
#define FINISH(v, r, block) finish(v, r, (block) * 4, rows, columns NORMS_ARG EPILOGUE_ARGS)
#define PUT(v, r, block) do { \
        if ((r) < rows && (block) * 4 < columns) STOREV(y, (size_t)(r) * columns + (block) * 4, v); \
    } while (0)

__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void matmul_staged(global const REAL *restrict a, global const uint4 *restrict weights, global REAL *restrict y, int rows,
                          int columns, int k, int tiles, int steps, int turns NORM_PARAMS EPILOGUE_PARAMS) {
    STAGES_LOCAL;
    UNITS;
    float sum[WM][WN][2][4];
    UNROLLED
    for (int i = 0; i < WM * WN * 8; ++i) sum[i / (WN * 8)][i / 8 % WN][i / 4 % 2][i % 4] = ZERO;
#if NORMALIZED
    RowSums row_sums;
    UNROLLED
    for (int i = 0; i < WM * 12; ++i) row_sums[i / 12][i / 4 % 3][i % 4] = ZERO;
#endif
    SUM_STAGES(sum, turns);
#if NORMALIZED
    find_norms(row_sums, stages, k, epsilon);
#endif
    STORE_ALL(sum);
}
