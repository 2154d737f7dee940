// Convolution of channel-packed halves (blocks of PACK = 4) on NVIDIA's matrix units: see mma/mma_tile.cl for the tiles.
//   y[n, o, p] = bias[o] + sum over taps k and blocks b of x[n, b, p*S - pad + k*D] . w[o, k, b]
// Quad q of a position is block q % ib of tap q / ib, so few channels waste nothing.
// Needs KD KH KW (filter), SD SH SW (stride), DD DH DW (dilation), HAS_BIAS, MASK (1: the last block's lanes
// from `m` on are set to zero). Work-group: 32 * PW * NW * SPLIT work-items. Grid: (position tiles * group size, channel tiles).
#if HAS_BIAS
#define BIAS_PARAM global const REAL *restrict bias,
#else
#define BIAS_PARAM
#endif
#define TAPS (KD * KH * KW)
#include "mma/tile_defaults.cl"

typedef struct {
    int3 corner[WM][2];  // input position of the first tap, in x, y, z
    int base[WM][2];     // first element of the image, in blocks; -1 past the last position
    int at[WM][2];       // block of the present tap in channel block 0; -1 outside the input
    int tap, block, ib, id, ih, iw;
} Cursor;
#define CURSOR Cursor

static inline uint2 quad_at(global const REAL *x, const Cursor *c, int i, int h) {
    const int at = c->at[i][h];
    return at < 0 || c->tap >= TAPS ? (uint2)0 : *((global const uint2 *)x + at + (size_t)c->block * (c->id * c->ih * c->iw));
}

static inline void find_tap(Cursor *c) {
    const int kx = c->tap % KW, ky = c->tap / KW % KH, kz = c->tap / (KW * KH);
    #pragma unroll
    for (int v = 0; v < WM * 2; ++v) {
        const int3 p = c->corner[v / 2][v % 2] + (int3)(kx * DW, ky * DH, kz * DD);
        const bool inside = p.x >= 0 && p.x < c->iw && p.y >= 0 && p.y < c->ih && p.z >= 0 && p.z < c->id;
        const int base = c->base[v / 2][v % 2];
        c->at[v / 2][v % 2] = inside && base >= 0 ? base + (p.z * c->ih + p.y) * c->iw + p.x : -1;
    }
}

static inline void wrap(Cursor *c) {
#if TAPS > 1
    if (c->block < c->ib) return;
    c->tap += c->block / c->ib;
    c->block %= c->ib;
    find_tap(c);
#else
    c->tap = c->block >= c->ib;
#endif
}

static inline void advance(Cursor *c) {
    c->block += 4;
    wrap(c);
}

#include "include/aligned_blocks.cl"
#define INLINE_PTX 1
#include "include/async_constant_loads.cl"
#include "mma/mma_tile.cl"

__attribute__((reqd_work_group_size(32 * PW * NW * SPLIT, 1, 1)))
kernel void conv_mma(global const REAL *restrict x, global const uint4 *restrict weights, BIAS_PARAM global REAL *restrict y,
                     int positions, int tiles, int steps, int ib, int ob, int m, int id, int ih, int iw, int od, int oh, int ow,
                     int pd, int ph, int pw EPILOGUE_PARAMS) {
    const int spatial = od * oh * ow, each = (steps + SPLIT - 1) / SPLIT;
    const int first = WARP_K * each, last = min(first + each, steps);
    LOCAL_PARTS
    Cursor c;
    c.ib = ib, c.id = id, c.ih = ih, c.iw = iw;
    #pragma unroll
    for (int v = 0; v < WM * 2; ++v) {
        const int p = FIRST_POSITION + v * 8 + LANE / 4, n = p / spatial, s = p - n * spatial;
        const int row = s / ow, oz = row / oh;
        c.corner[v / 2][v % 2] = (int3)((s - row * ow) * SW - pw, (row - oz * oh) * SH - ph, oz * SD - pd);
        c.base[v / 2][v % 2] = p < positions ? n * ib * (id * ih * iw) : -1;
    }
    c.tap = 0;
    c.block = 4 * first + LANE % 4;
    find_tap(&c);
    wrap(&c);

#if HAS_BIAS && FEW_RESULTS
    float4 bias_of[RESULTS];
    #pragma unroll
    for (int r = 0; r < RESULTS; ++r) bias_of[r] = LOADV(bias, min(RESULT_BLOCK(r), ob - 1) * PACK);
#endif
    float sum[WM][WN][2][4] = {0};
    sum_steps(sum, x, weights, &c, tiles, steps, first, last);

#if HAS_BIAS && FEW_RESULTS
#define BIASED(v, block, r) ((v) + bias_of[r])
#elif HAS_BIAS
#define BIASED(v, block, r) ((v) + LOADV(bias, (block) * PACK))
#else
#define BIASED(v, block, r) (v)
#endif
#if MASK
#define MASKED(v, block) MASK_LANES(v, m - (block) * PACK)
#else
#define MASKED(v, block) (v)
#endif
#define STORE_RESULT(v, p, cb, r) do { \
        const int p_ = (p), cb_ = (cb); \
        if (p_ < positions && cb_ < ob) { \
            const int n_ = p_ / spatial, s_ = p_ - n_ * spatial; \
            const float4 biased_ = BIASED(v, cb_, r); \
            const float4 out_ = EPILOGUE(biased_, n_, cb_, s_, ob, spatial); \
            STOREV(y, (((size_t)n_ * ob + cb_) * spatial + s_) * PACK, MASKED(out_, cb_)); \
        } \
    } while (0)
    STORE_ALL(sum);
}
