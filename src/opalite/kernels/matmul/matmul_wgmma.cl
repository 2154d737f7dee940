// y[r, c] = sum over k of a[r, k] b[k, c] for halves and constant b by warpgroups: see mma/wgmma_tile.cl for the tiles.
// K is a multiple of 8, N of 4. Work-group: 128 * PW work-items. Grid: (tiles * group size, PARTS).
//   NORMALIZED   1: the rows of a are normalised first, as in matmul/matmul_mma_staged.cl; each work-item sums its own operands
#ifndef NORMALIZED
#define NORMALIZED 0
#endif
#if NORMALIZED
#define SEEN(quads) add_quads(row_sums, quads)
#define NORMAL(v, h, block) \
    ((v) * norms[(h) / 8].y + vload4(0, column_sums + min((block) * 4, columns - 4)) * norms[(h) / 8].x)
#endif
#include "include/aligned_blocks.cl"
#include "mma/wgmma_tile.cl"

// Each work-item copies its own operands: of a row, the adjacent quads of both instructions.
#define SEAT_AT (get_local_id(0) * 16)
#define OTHER (GROUP * 16)
#define FETCHED COPY_WAIT(KEEP)
#define READ_QUADS(quads, seat, u) do { \
        READ((quads)[0], (seat) + (u) * 8); \
        READ((quads)[1], (seat) + OTHER + (u) * 8); \
    } while (0)
#define FETCH(seat, i) do { \
        const int term_ = (first + (i)) * 32 + LANE % 4 * 8; \
        const bool exists_ = term_ < k; \
        COPY_16(seat, a + (top + (exists_ ? term_ : 0)), exists_); \
        COPY_16((seat) + OTHER, a + (bottom + (exists_ ? term_ : 0)), exists_); \
    } while (0)
#define STAGE_AT(i) (weights + ((size_t)place.y * chunks + first + (i)) * STAGE_BYTES)

#if PARTS > 1
#define RESULT global float *restrict parts
#define CHAIN
#define FINISH(v, r, block) (v)
#define PUT(v, r, block) do { \
        const int part_ = get_group_id(1); \
        if ((r) < rows && (block) * 4 < columns) \
            *(global float4 *)(parts + ((size_t)part_ * rows + (r)) * columns + (block) * 4) = v; \
    } while (0)
#else
#define RESULT global REAL *restrict y
#define CHAIN EPILOGUE_PARAMS
static inline float4 finish(float4 v, int r, int c, int rows, int columns EPILOGUE_PARAMS) {
    c = min(c, columns - 4);
    r = min(r, rows - 1);
    return EPILOGUE(v, r, c, rows, columns);
}
#define FINISH(v, r, block) finish(v, r, (block) * 4, rows, columns EPILOGUE_ARGS)
#define PUT(v, r, block) do { \
        if ((r) < rows && (block) * 4 < columns) STOREV(y, (size_t)(r) * columns + (block) * 4, v); \
    } while (0)
#endif

#if NORMALIZED
#define NORM_PARAMS , global const float *restrict column_sums, float epsilon

// Of two rows: sums, and sums of squares.
static inline void add_quads(float2 sums[2], const uint2 quads[2]) {
    _Pragma("unroll")
    for (int i = 0; i < 4; ++i) {
        const float2 v = FLOATS(i % 2 ? quads[i / 2].y : quads[i / 2].x);
        sums[i / 2] += (float2)(v.x + v.y, v.x * v.x + v.y * v.y);
    }
}
#else
#define NORM_PARAMS
#endif

__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void matmul_warpgroup(global const REAL *restrict a, global const uchar *restrict weights, RESULT, int rows, int columns,
                             int k, int chunks, int high, int wide NORM_PARAMS CHAIN) {
    ROOM;
    const int2 place = find_place(high, wide);
    const int first = FIRST_CHUNK(chunks), mine = OWN_CHUNKS(chunks);
    const uint top = (uint)min(POSITION(place.x, 0), rows - 1) * k, bottom = (uint)min(POSITION(place.x, 8), rows - 1) * k;
    float sum[BN / 2];
    _Pragma("unroll")
    for (int i = 0; i < BN / 2; ++i) sum[i] = ZERO;
#if NORMALIZED
    float2 row_sums[2], norms[2];  // of a row: what column_sums and what sums are multiplied by
    row_sums[0] = row_sums[1] = (float2)(ZERO, ZERO);
#endif
    SUM_CHUNKS(sum, mine);
#if NORMALIZED
    for (int i = 0; i < 2; ++i) {
        const float mean = ALL_FOUR(row_sums[i].x) / k, squares = ALL_FOUR(row_sums[i].y) / k;
        const float factor = 1.0f / sqrt(fmax(squares - mean * mean, 0.0f) + epsilon);
        norms[i] = (float2)(-mean * factor, factor);
    }
#endif
    STORE_ALL(sum, place);
}

#if PARTS > 1
#include "matmul/split_k_sum.cl"
#endif
