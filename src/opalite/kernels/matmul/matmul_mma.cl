// y[r, c] = sum over k of a[r, k] b[k, c] for halves and constant b on NVIDIA's matrix units: see mma/mma_tile.cl for the tiles.
// K and N are multiples of 4. Work-group: 32 * PW * NW * SPLIT work-items. Grid: (row tiles * group size, column tiles).
#include "mma/tile_defaults.cl"

typedef struct {
    int row[WM][2];  // first quad of the row; -1 past the last row
    int quad, quads;
} Cursor;
#define CURSOR Cursor

static inline uint2 quad_at(global const REAL *x, const Cursor *c, int i, int h) {
    return c->row[i][h] < 0 || c->quad >= c->quads ? (uint2)0 : *((global const uint2 *)x + c->row[i][h] + c->quad);
}

static inline void advance(Cursor *c) { c->quad += 4; }

#include "include/aligned_blocks.cl"
#define INLINE_PTX 1
#include "include/async_constant_loads.cl"
#include "mma/mma_tile.cl"

__attribute__((reqd_work_group_size(32 * PW * NW * SPLIT, 1, 1)))
kernel void matmul_mma(global const REAL *restrict a, global const uint4 *restrict weights, global REAL *restrict y, int rows,
                       int columns, int tiles, int steps, int quads EPILOGUE_PARAMS) {
    const int each = (steps + SPLIT - 1) / SPLIT, first = WARP_K * each, last = min(first + each, steps);
    LOCAL_PARTS
    Cursor c;
    #pragma unroll
    for (int v = 0; v < WM * 2; ++v) {
        const int r = FIRST_POSITION + v * 8 + LANE / 4;
        c.row[v / 2][v % 2] = r < rows ? r * quads : -1;
    }
    c.quad = 4 * first + LANE % 4;
    c.quads = quads;
    float sum[WM][WN][2][4] = {0};
    sum_steps(sum, a, weights, &c, tiles, steps, first, last);
#define STORE_RESULT(v, r, block, i) do { \
        const int r_ = (r), c_ = (block) * 4; \
        if (r_ < rows && c_ < columns) { \
            const float4 in_ = v; \
            const float4 out_ = EPILOGUE(in_, r_, c_, rows, columns); \
            STOREV(y, (size_t)r_ * columns + c_, out_); \
        } \
    } while (0)
    STORE_ALL(sum);
}
