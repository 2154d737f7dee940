// Convolution of channel-packed halves (blocks of PACK = 4) by warpgroups: see mma/wgmma_tile.cl for the tiles.
//   y[n, o, p] = bias[o] + sum over taps k and blocks b of x[n, b, p*S - pad + k*D] . w[o, k, b]
// The channel blocks, a multiple of 8, are taken tap by tap, a chunk of 8 at a time; starts[chunk] = (the distance of its first
// quad from the position's first tap in channel block 0, in blocks; its tap), with tap TAPS for one past the last.
// Needs KD KH KW (filter), SD SH SW (stride), DD DH DW (dilation), HAS_BIAS, MASK (1: the last block's lanes from `m` on
// are set to zero), SKIP (1: chunks of taps that no position of the group has inside x are left out).
// At most 31 taps, 63 with WIDE. Work-group: 128 * PW work-items. Grid: (tiles * group size, PARTS).
#include "conv/implicit_gemm_positions.cl"
#include "include/aligned_blocks.cl"
#include "mma/wgmma_tile.cl"

#if SKIP
#define CHUNK_AT(i) chunk_at(first + (i), own, each_tap, inverse, order, chunks)

static inline int chunk_at(int i, int own, int each_tap, float inverse, local const uchar *order, int chunks) {
    if (i >= own) return chunks;
    const int tap = (int)((i + 0.5f) * inverse);
    return order[tap] * each_tap + i - tap * each_tap;
}

// Writes to `order` the taps that are inside x for any position of the group; returns their count.
static inline int find_order(TAP_SET mine, local uint *met, local uchar *order) {
    const int item = get_local_id(0);
    if (item < 2) met[item] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    atomic_or(met, (uint)mine);
#if WIDE
    atomic_or(met + 1, (uint)(mine >> 32));
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
    const ulong all = (ulong)met[1] << 32 | met[0];
    if (item < TAPS && (all >> item & 1)) order[popcount(all & (((ulong)1 << item) - 1))] = item;
    barrier(CLK_LOCAL_MEM_FENCE);
    return (int)popcount(all);
}
#else
#define CHUNK_AT(i) min(first + (i), chunks)
#endif

// A warp copies 16 adjacent positions of two quads at once: they are contiguous in x. Quad q of a chunk is in row
// q, position p at p ^ (q % 4 * 4), so that lanes reading 8 bytes of four quads have no bank conflicts.
#define SEAT_AT (((int)get_local_id(0) >> 5) * 1024)
#define PLACE(q, p) (((q) * 16 + ((p) ^ ((q) % 4 * 4))) * 8)
#define FETCHED do { \
        COPY_WAIT(KEEP); \
        MEET_WARP; \
    } while (0)
#define READ_QUADS(quads, seat, u) do { \
        READ((quads)[0], (seat) + PLACE((u) * 4 + LANE % 4, LANE / 4)); \
        READ((quads)[1], (seat) + PLACE((u) * 4 + LANE % 4, LANE / 4 + 8)); \
    } while (0)
#define FETCH(seat, i) do { \
        const bool exists_ = taps >> coming.y & 1; \
        _Pragma("unroll") \
        for (int j_ = 0; j_ < 8; j_ += 2) { \
            const int q_ = j_ + LANE / 16, at_quad_ = exists_ ? base + coming.x + q_ * plane : 0; \
            COPY_8((seat) + PLACE(q_, LANE % 16), (global const uint2 *)x + at_quad_, exists_); \
        } \
        coming = starts[CHUNK_AT((i) + 1)]; \
    } while (0)
#define STAGE_AT(i) (weights + ((size_t)place.y * chunks + CHUNK_AT(i)) * STAGE_BYTES)

#if PARTS > 1
#define RESULT global float *restrict parts,
#define CHAIN
#undef FINISH
#undef PUT
#define FINISH(v, p, block) (v)
#define PUT(v, p, block) do { \
        const int part_ = get_group_id(1); \
        if ((p) < positions && (block) < ob) \
            *(global float4 *)(parts + (((size_t)part_ * ob + (block)) * positions + (p)) * 4) = v; \
    } while (0)
#else
#define RESULT BIAS_PARAM global REAL *restrict y,
#define CHAIN EPILOGUE_PARAMS
#endif

__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void conv_warpgroup(global const REAL *restrict x, global const uchar *restrict weights, RESULT
                           global const int2 *restrict starts, int positions, int chunks, int high, int wide, int ib, int ob, int m,
                           int id, int ih, int iw, int od, int oh, int ow, int pd, int ph, int pw CHAIN) {
    ROOM;
#if SKIP
    local uint met[2];
    local uchar order[64];
#endif
    const int2 place = find_place(high, wide);
    int base;  // address of the first tap of this work-item's position in channel block 0, in blocks; may be outside
    const int copied = (place.x * PW * 4 + ((int)get_local_id(0) >> 5)) * 16 + LANE % 16;
    const TAP_SET taps = find_taps(copied, positions, &base, ib, id, ih, iw, od, oh, ow, pd, ph, pw);
#if SKIP
    const int each_tap = ib / 8, own = find_order(taps, met, order) * each_tap;
    const float inverse = 1.0f / each_tap;
#else
    const int own = chunks;
#endif
    const int first = FIRST_CHUNK(own), mine = OWN_CHUNKS(own);
    const int plane = id * ih * iw;
    int2 coming = starts[CHUNK_AT(0)];  // the next chunk to load
    float sum[BN / 2];
    _Pragma("unroll")
    for (int i = 0; i < BN / 2; ++i) sum[i] = ZERO;
    SUM_CHUNKS(sum, mine);
    STORE_ALL(sum, place);
}

#if PARTS > 1
#include "conv/split_k_sum.cl"
#endif
