// y[r, c] = sum over k of a[r, k] b[k, c] for halves and constant b on matrix units: see mma_stages.cl for the tiles.
// K is a multiple of 8, N of 4. `turns` stages cover K. Work-group: 32 * PW * NW * SPLIT work-items. Grid: (row tiles *
// group size, column tiles).
#include "aligned_blocks.cl"
#include "mma_stages.cl"

// Rows of a slab lie one after the other, 64 bytes each, so that lanes reading 16 bytes meet in no memory bank.
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

static inline float4 finish(float4 v, int r, int c, int rows, int columns EPILOGUE_PARAMS) {
    r = min(r, rows - 1), c = min(c, columns - 4);
    return EPILOGUE(v, r, c, rows, columns);
}
#define FINISH(v, r, block) finish(v, r, (block) * 4, rows, columns EPILOGUE_ARGS)
#define PUT(v, r, block) do { \
        if ((r) < rows && (block) * 4 < columns) STOREV(y, (size_t)(r) * columns + (block) * 4, v); \
    } while (0)

__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void matmul_staged(global const REAL *restrict a, global const uint4 *restrict weights, global REAL *restrict y, int rows,
                          int columns, int k, int tiles, int steps, int turns EPILOGUE_PARAMS) {
    STAGES_LOCAL;
    UNITS;
    float sum[WM][WN][2][4];
    UNROLLED
    for (int i = 0; i < WM * WN * 8; ++i) sum[i / (WN * 8)][i / 8 % WN][i / 4 % 2][i % 4] = ZERO;
    SUM_STAGES(sum, turns);
    STORE_ALL(sum);
}
