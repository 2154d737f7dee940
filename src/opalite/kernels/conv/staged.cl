// Convolution of channel-packed halves (blocks of PACK = 4) on matrix units: see mma/stages.cl for the tiles.
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
#define TAPS (KD * KH * KW)
#if WIDE
#define TAP_SET ulong
#else
#define TAP_SET uint
#endif
#include "conv/finish.cl"
#include "include/aligned_blocks.cl"
#include "mma/stages.cl"

#define SPOTS (BM / PAIR)  // where a copy of a quad may begin
#define OWN (SPOTS > GROUP ? SPOTS / GROUP : 1)
#define SHARING (GROUP > SPOTS ? GROUP / SPOTS : 1)
#define SPOT ((int)get_local_id(0) % SPOTS)

typedef struct {
    int base[OWN];      // where the first tap of the position lies in channel block 0, in blocks; may be outside
    TAP_SET taps[OWN];  // those inside the input; none past the last position
} Places;

// Quads lie one after the other, each with 8 bytes of every position; position p of quad q stands at p ^ (q % 4 * 4), so
// that lanes reading 8 bytes of four quads meet in no memory bank.
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

// Tiles reach past the last position and block; what is computed there is not stored.
static inline ACCV finish_tile(ACCV v, int p, int block, int positions, int spatial, int ob, BIAS_PARAM int m EPILOGUE_PARAMS) {
    p = min(p, positions - 1), block = min(block, ob - 1);
    const int n = p / spatial;
    return finish(v, n, block, p - n * spatial, ob, spatial, BIAS_ARG m EPILOGUE_ARGS);
}
#define FINISH(v, p, block) finish_tile(v, p, block, positions, spatial, ob, BIAS_ARG m EPILOGUE_ARGS)
#define PUT(v, p, block) do { \
        const int n_ = (p) / spatial, s_ = (p) - n_ * spatial; \
        if ((p) < positions && (block) < ob) STOREV(y, (((size_t)n_ * ob + (block)) * spatial + s_) * PACK, v); \
    } while (0)

__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void conv_staged(global const REAL *restrict x, global const uint4 *restrict weights, BIAS_PARAM global REAL *restrict y,
                        global const int2 *restrict quads, int positions, int tiles, int steps, int turns, int ib, int ob, int m,
                        int id, int ih, int iw, int od, int oh, int ow, int pd, int ph, int pw EPILOGUE_PARAMS) {
    STAGES_LOCAL;
    UNITS;
    const int spatial = od * oh * ow;
    Places places;
    UNROLLED
    for (int i = 0; i < OWN; ++i) {
        const int p = get_group_id(0) * BM + (SPOT + i * GROUP) * PAIR, n = p / spatial, s = p - n * spatial;
        const int row = s / ow, oz = row / oh, cx = (s - row * ow) * SW - pw, cy = (row - oz * oh) * SH - ph, cz = oz * SD - pd;
        places.base[i] = n * ib * (id * ih * iw) + (cz * ih + cy) * iw + cx;
        TAP_SET inside = 0;
        for (int k = 0; k < TAPS; ++k) {
            const int vx = cx + k % KW * DW, vy = cy + k / KW % KH * DH, vz = cz + k / (KW * KH) * DD;
            const bool exists = vx >= 0 && vx < iw && vy >= 0 && vy < ih && vz >= 0 && vz < id;
            inside |= (TAP_SET)exists << k;
        }
        places.taps[i] = p < positions ? inside : 0;
    }
    float sum[WM][WN][2][4];
    UNROLLED
    for (int i = 0; i < WM * WN * 8; ++i) sum[i / (WN * 8)][i / 8 % WN][i / 4 % 2][i % 4] = ZERO;
    SUM_STAGES(sum, turns);
    STORE_ALL(sum);
}
