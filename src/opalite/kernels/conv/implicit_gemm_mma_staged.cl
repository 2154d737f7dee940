// Convolution of channel-packed halves (blocks of PACK = 4) on matrix units: see mma/staged_tile.cl for the tiles.
//   y[n, o, p] = bias[o] + sum over taps k and blocks b of x[n, b, p*S - pad + k*D] . w[o, k, b]
// Quad q of a position is block q % ib of tap q / ib, so few channels waste nothing; quads[q] = (its distance from the
// position's first tap in channel block 0, in blocks; its tap), with tap TAPS for quads past the last.
// Needs KD KH KW (filter), SD SH SW (stride), DD DH DW (dilation), HAS_BIAS, MASK (1: the last block's lanes from `m` on
// are set to zero), PAIR (positions of one copy: 2 where neighbours in y are neighbours in x, at even places of even
// images; else 1). At most 31 taps, 63 with WIDE. Work-group: 32 * PW * NW * SPLIT work-items. Grid: (position tiles *
// group size, channel tiles).
#ifndef PAIR
#define PAIR 1
#endif
#include "conv/implicit_gemm_positions.cl"
#include "include/aligned_blocks.cl"
#include "mma/staged_tile.cl"

#define SPOTS (BM / PAIR)  // where a copy of a quad may begin
#define OWN (SPOTS > GROUP ? SPOTS / GROUP : 1)
#define SHARING (GROUP > SPOTS ? GROUP / SPOTS : 1)
#define SPOT ((int)get_local_id(0) % SPOTS)

typedef struct {
    int base[OWN];      // address of the position's first tap in channel block 0, in blocks; may be outside
    TAP_SET taps[OWN];  // bits of the taps inside the input; none past the last position
} Places;

// Quads are consecutive, each with 8 bytes of every position; position p of quad q is stored at p ^ (q % 4 * 4), so
// that lanes reading 8 bytes of four quads have no bank conflicts.
#define PLACE(q, p) ((q) * BM + ((p) ^ ((q) % 4 * 4)))

static inline void copy_quads(local uint4 *stage, global const REAL *x, const Places *places, global const int2 *quads,
                              int turn, UNITS_PARAM) {
    local uint2 *to = (local uint2 *)stage;
    UNROLLED
    for (int k = 0; k < 8 * SL / SHARING; ++k) {
        const int q = k * SHARING + (SHARING > 1 ? (int)get_local_id(0) / SPOTS : 0);
        const int2 quad = quads[turn * (8 * SL) + q];
        UNROLLED
        for (int i = 0; i < OWN; ++i) {
            const bool exists = places->taps[i] >> quad.y & 1;
            const int at = exists ? places->base[i] + quad.x : 0;
#if PAIR == 2
            COPY(16, to + PLACE(q, (SPOT + i * GROUP) * 2), (global const uint2 *)x + at, exists);
#else
            COPY(8, to + PLACE(q, SPOT + i * GROUP), (global const uint2 *)x + at, exists);
#endif
        }
    }
}
#define COPY_INPUT(stage, turn) copy_quads(stage, x, &places, quads, turn, units_)

static inline uint4 quads_of(local const uint4 *stage, int u, int position) {
    local const uint2 *from = (local const uint2 *)stage;
    const int q = 8 * u + LANE % 4;
    return (uint4)(from[PLACE(q, position)], from[PLACE(q + 4, position)]);
}
#define INPUT(stage, u, position) quads_of(stage, u, position)

__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void conv_staged(global const REAL *restrict x, global const uint4 *restrict weights, BIAS_PARAM global REAL *restrict y,
                        global const int2 *restrict quads, int positions, int tiles, int steps, int turns, int ib, int ob, int m,
                        int id, int ih, int iw, int od, int oh, int ow, int pd, int ph, int pw SPREAD_PARAM EPILOGUE_PARAMS) {
    STAGES_LOCAL;
    UNITS;
    Places places;
    UNROLLED
    for (int i = 0; i < OWN; ++i)
        places.taps[i] = find_taps(get_group_id(0) * BM + (SPOT + i * GROUP) * PAIR, positions, places.base + i, ib, id, ih, iw, od,
                                   oh, ow, pd, ph, pw);
    float sum[WM][WN][2][4];
    UNROLLED
    for (int i = 0; i < WM * WN * 8; ++i) sum[i / (WN * 8)][i / 8 % WN][i / 4 % 2][i % 4] = ZERO;
    SUM_STAGES(sum, turns);
    STORE_ALL(sum);
}
