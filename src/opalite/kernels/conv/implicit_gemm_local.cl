// Convolution of channel-packed tensors (blocks of PACK = 4) as a matrix product over positions, from tiles in local memory:
// see fma/local_memory_tile.cl for the tiles, whose rows are positions and whose columns are output channels.
//   y[n, o, p] = bias[o] + sum over taps k and blocks b of x[n, b, p*S - pad + k*D] . w[o, k, b]
// Quad q of a position is block q % ib of tap q / ib; quads[q] = (block, tap), with tap TAPS for quads past the last.
// Needs KD KH KW (filter), SD SH SW (stride), DD DH DW (dilation), HAS_BIAS, MASK (1: the last block's lanes from `m` on
// are set to zero), POINTWISE (1: y's positions are x's, and quads are blocks; there is no table). At most 31 taps, 63 with
// WIDE. Weights: panels [groups, ceil(ob * PACK / BN), turns * SLAB, BN]; bias: [groups * ob * PACK]; ib, ob of a group.
// Work-group: RY * CX * SPLIT. Grid: (position tiles * group, groups * ceil(ob * PACK / BN), PARTS).
#define ALONG 1
#include "conv/bias_epilogue.cl"
#include "include/aligned_blocks.cl"
#include "fma/local_memory_tile.cl"
#ifndef POINTWISE
#define POINTWISE 0
#endif
#define TAPS (KD * KH * KW)
#if WIDE
#define TAP_SET ulong
#else
#define TAP_SET uint
#endif

// A work-item loads quads of OWN positions, each together with SHARING - 1 others.
#define OWN (BM > GROUP ? BM / GROUP : 1)
#define SHARING (GROUP > BM ? GROUP / BM : 1)
#define QUADS (SLAB / PACK)
#define OWN_QUADS ((QUADS + SHARING - 1) / SHARING)
#define SPOT (ITEM % BM)
#define QUAD(i) ((i) * SHARING + (SHARING > 1 ? ITEM / BM : 0))

// The position of a slot. Adjacent work-items store adjacent positions, and load adjacent positions in groups of eight or more.
#define POSITION(slot) ((slot) / (RY * PACK) * (RY * PACK) + (slot) % PACK * RY + (slot) / PACK % RY)

typedef struct {
    int base[OWN];      // address of the position's first tap in channel block 0, in blocks; may be outside
    TAP_SET taps[OWN];  // bits of the taps inside the input; none past the last position
} Places;

static inline void fetch_quads(ACCV *next, global const REAL *x, const Places *places, global const int2 *quads, int turn, int ib,
                               int whole, int ih, int iw) {
    UNROLLED
    for (int k = 0; k < OWN_QUADS; ++k) {
        if (QUADS % SHARING != 0 && QUAD(k) >= QUADS) break;
        const int q = turn * QUADS + QUAD(k);
#if POINTWISE
        const int far = q * whole;
        const TAP_SET tap = q < ib;
#else
        const int2 quad = quads[q];
        const int far = quad.x * whole + (quad.y / (KW * KH) * DD * ih + quad.y / KW % KH * DH) * iw + quad.y % KW * DW;
        const TAP_SET tap = quad.y < TAPS ? (TAP_SET)1 << quad.y : 0;
#endif
        UNROLLED
        for (int i = 0; i < OWN; ++i) {
            const bool exists = (places->taps[i] & tap) != 0;
            next[k * OWN + i] = exists ? LOADV(x, (size_t)(places->base[i] + far) * PACK) : (ACCV)0;
        }
    }
}

static inline void put_quads(local ACCV *tile, const ACCV *next) {
    local ACC *cells = (local ACC *)tile;
    UNROLLED
    for (int k = 0; k < OWN_QUADS; ++k) {
        if (QUADS % SHARING != 0 && QUAD(k) >= QUADS) break;
        UNROLLED
        for (int i = 0; i < OWN; ++i) {
            local ACC *cell = cells + QUAD(k) * PACK * (A_PITCH * PACK) + SPOT + i * GROUP;
            const ACCV v = next[k * OWN + i];
            cell[0] = v.s0;
            cell[A_PITCH * PACK] = v.s1;
            cell[2 * A_PITCH * PACK] = v.s2;
            cell[3 * A_PITCH * PACK] = v.s3;
        }
    }
}
#undef A_LOADS
#define A_LOADS (OWN_QUADS * OWN)
#define FETCH_A(next, turn) fetch_quads(next, x, &places, QUAD_TABLE, turn, ib, whole, ih, iw)
#define PUT_A put_quads

static inline void fetch_panel(ACCV *next, global const REAL *weights, int turn) {
    UNROLLED
    for (int i = 0; i < B_LOADS; ++i) {
        const int e = ITEM + i * GROUP;
        if (BN * SLAB / PACK % GROUP != 0 && e >= BN * SLAB / PACK) break;
        next[i] = LOADV(weights, ((size_t)turn * (BN * SLAB / PACK) + e) * PACK);
    }
}
static inline void put_panel(local ACCV *tile, const ACCV *next) {
    UNROLLED
    for (int i = 0; i < B_LOADS; ++i) {
        const int e = ITEM + i * GROUP;
        if (BN * SLAB / PACK % GROUP != 0 && e >= BN * SLAB / PACK) break;
        tile[e] = next[i];
    }
}
#define FETCH_B(next, turn) fetch_panel(next, weights, turn)
#define PUT_B put_panel

#if POINTWISE
#define TABLE_PARAM
#define QUAD_TABLE 0
#else
#define TABLE_PARAM global const int2 *restrict quads,
#define QUAD_TABLE quads
#endif

#if PARTS > 1
#define RESULT global ACC *restrict parts,
#define CHAIN
#else
#define RESULT BIAS_PARAM global REAL *restrict y,
#define CHAIN EPILOGUE_PARAMS
#endif

__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void conv_local(global const REAL *restrict x, global const REAL *restrict weights, RESULT TABLE_PARAM int positions,
                       int groups, int turns, int ib, int ob, int m, int id, int ih, int iw, int od, int oh, int ow, int pd,
                       int ph, int pw CHAIN) {
    local ACCV cells[CELLS];
    const int spatial = od * oh * ow, whole = id * ih * iw, p0 = get_group_id(0) * BM, part = get_group_id(2);
    const int panels = (ob * PACK + BN - 1) / BN, g = get_group_id(1) / panels, panel = get_group_id(1) - g * panels;
    const int own = OWN_TURNS(part, turns), all = groups * ob;
    weights += (size_t)get_group_id(1) * turns * (SLAB * BN);
    Places places;
    UNROLLED
    for (int i = 0; i < OWN; ++i) {
        const int p = p0 + POSITION(SPOT + i * GROUP), n = p / spatial, s = p - n * spatial;
#if POINTWISE
        places.base[i] = (n * groups + g) * ib * whole + s;
        places.taps[i] = p < positions;
#else
        const int row = s / ow, oz = row / oh, cx = (s - row * ow) * SW - pw, cy = (row - oz * oh) * SH - ph, cz = oz * SD - pd;
        places.base[i] = (n * groups + g) * ib * whole + (cz * ih + cy) * iw + cx;
        TAP_SET inside = 0;
        for (int k = 0; k < TAPS; ++k) {
            const int vx = cx + k % KW * DW, vy = cy + k / KW % KH * DH, vz = cz + k / (KW * KH) * DD;
            const bool exists = vx >= 0 && vx < iw && vy >= 0 && vy < ih && vz >= 0 && vz < id;
            inside |= (TAP_SET)exists << k;
        }
        places.taps[i] = p < positions ? inside : 0;
#endif
    }
    ACCV sum[TM][TN / PACK];
    UNROLLED
    for (int i = 0; i < TM; ++i)
        UNROLLED
        for (int j = 0; j < TN / PACK; ++j) sum[i][j] = (ACCV)0;
    if (own > 0) SUM_SLABS(sum, cells, FIRST_TURN(part, turns), own);
    ADD_SHARES(sum, cells);
    UNROLLED
    for (int i = 0; i < TM; ++i) {
        const int p = p0 + POSITION(SLOT_OF_ROW(i));
        if (!MINE(i) || p >= positions) continue;
#if PARTS == 1
        const int n = p / spatial, s = p - n * spatial;
#endif
        UNROLLED
        for (int j = 0; j < TN / PACK; ++j) {
            const int at = (panel * BN + COLUMN_OF(j)) / PACK, block = g * ob + at;
            if (at >= ob) continue;
#if PARTS > 1
            *(global ACCV *)(parts + (((size_t)part * all + block) * positions + p) * PACK) = sum[i][j];
#else
            const ACCV out = finish(sum[i][j], n, block, s, all, spatial, BIAS_ARG m EPILOGUE_ARGS);
            STOREV(y, (((size_t)n * all + block) * spatial + s) * PACK, out);
#endif
        }
    }
}

#if PARTS > 1
#include "conv/split_k_sum.cl"
#endif
