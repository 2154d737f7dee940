// y[r, c] = sum over k of a[r, k] b[k, c] for halves and constant b by warpgroups: see mma/warpgroup.cl for the tiles.
// K is a multiple of 8, N of 4. Work-group: 128 * PW work-items. Grid: (tiles * group size).
#include "include/aligned_blocks.cl"
#include "mma/warpgroup.cl"

#define FETCH(seat, chunk) do { \
        const int term_ = (chunk) * 32 + LANE % 4 * 8; \
        const bool exists_ = term_ < k; \
        COPY_16(seat, a + (top + (exists_ ? term_ : 0)), exists_); \
        COPY_16((seat) + OTHER, a + (bottom + (exists_ ? term_ : 0)), exists_); \
    } while (0)

__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void matmul_warpgroup(global const REAL *restrict a, global const uchar *restrict weights, global REAL *restrict y,
                             int rows, int columns, int k, int chunks, int high, int wide EPILOGUE_PARAMS) {
    ROOM;
    const int2 place = find_place(high, wide);
    const uint top = (uint)min(POSITION(place.x, 0), rows - 1) * k, bottom = (uint)min(POSITION(place.x, 8), rows - 1) * k;
    float sum[BN / 2];
    _Pragma("unroll")
    for (int i = 0; i < BN / 2; ++i) sum[i] = ZERO;
    SUM_CHUNKS(sum, weights + (size_t)place.y * chunks * STAGE_BYTES, chunks);
#define STORE_RESULT(v, r, block) do { \
        const int r_ = (r), c_ = (block) * 4; \
        if (r_ < rows && c_ < columns) { \
            const float4 in_ = v; \
            const float4 out_ = EPILOGUE(in_, r_, c_, rows, columns); \
            STOREV(y, (size_t)r_ * columns + c_, out_); \
        } \
    } while (0)
    STORE_ALL(sum, place);
}
