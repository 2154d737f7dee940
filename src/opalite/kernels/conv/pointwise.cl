// 1x1 convolution of stride 1 on channel-packed tensors, a matrix product over the flattened positions: one work-item
// computes tiles of TW adjacent positions of TB output blocks.
//   y[n, o, p] = bias[o] + sum over b, c of x[n, b, p][c] * w[group, tile, b, c, o]
// Needs HAS_BIAS, MASK (1: the last block's lanes from `m` on are set to zero), IN_REGISTERS (1: load vectors of x and
// unroll all of a block, which suits a GPU; 0: broadcast single elements, which suits a CPU), and GROUP (adjacent
// tiles that use one chunk of filters in turn; 1: each tile uses all filters at once).
// Weights: [groups, ceil(ob / TB), ib, PACK, TB, PACK]; bias: [groups * ob * PACK], ob and ib counted in a group,
// cg = channels of a group in x, s = positions, at least TW unless NARROW. A work-item does `span` adjacent tiles in turn. `chunk`
// is counted in blocks of input channels, during each of which `ahead` lines of 64 bytes of the next one are fetched.
// BANDED: see conv/register_tile.cl.
// Grid: ceil(ceil(s / TW) / span), groups * ceil(ob / TB), batch.
#if IN_REGISTERS
#undef UNROLL
#define UNROLL PACK
#else
#define INPUT global const REAL *
#define ELEMENT(p, i) LOAD(p, i)
#endif
#include "conv/register_tile.cl"
#define BLOCK (PACK * TB * PACK)
#define TERMS PACK

kernel void conv_pointwise(global const REAL *restrict x, global const REAL *restrict weights,
                           BIAS_PARAM global REAL *restrict y, int span, int chunk, int ahead, int batch, int groups, int cg,
                           int ib, int ob, int m, BAND_PARAMS int s EPILOGUE_PARAMS) {
    const int og = (ob + TB - 1) / TB, g = get_global_id(1) / og, tile = get_global_id(1) - g * og;
    const int n = get_global_id(2);
    if (g >= groups || n >= batch) return;
    const int first = g * ob + tile * TB, blocks = min(TB, ob - tile * TB);
    const int begin = get_global_id(0) * span, end = min(begin + span, (s + TW - 1) / TW);
    global const REAL *filters = weights + (size_t)get_global_id(1) * ib * BLOCK;
    const int low = BAND_BEGIN(tile * TB * PACK) / PACK;
    const int high = (BAND_END(min((tile + 1) * TB * PACK, m / groups), ib * PACK) + PACK - 1) / PACK;
#if NARROW
    if (s < TW) {
        for (int p = begin * s; p < end * s; ++p) {
            ACCV acc[TW * TB];
            start_tile(acc, BIAS_ARG first, blocks);
            for (int b = low; b < high; ++b)
                multiply_pixel(acc, x + (((size_t)(n * groups + g) * ib + b) * s + p) * PACK, filters + (size_t)b * BLOCK,
                               min(PACK, cg - b * PACK));
            store_tile(acc, y, n, first, blocks, groups * ob, m, s, p, 1, 0, 1 EPILOGUE_ARGS);
        }
        return;
    }
#endif
    KEPT_TILES
    for (int i0 = begin; i0 < end; i0 += GROUP) {
        const int i1 = min(i0 + GROUP, end);
        for (int b0 = low; b0 < high; b0 += CHUNK(high - low)) {
            const int b1 = min(b0 + CHUNK(high - low), high);
            global const REAL *next = filters + (size_t)b1 * BLOCK;
            for (int i = i0; i < i1; ++i) {
                // The last tile is shifted back into the tensor and recomputes part of the previous tile.
                const int p0 = min(i * TW, s - TW);
                global const REAL *w = filters + (size_t)b0 * BLOCK;
                global const REAL *column = x + (((size_t)(n * groups + g) * ib + b0) * s + p0) * PACK;
                ACCV acc[TW * TB];
                RESUME_TILE(acc, b0 > low, BIAS_ARG first, blocks);
                for (int b = b0; b < b1; ++b) {
                    next = fetch_lines(next, ahead);
#if GROUP > 1
                    if (b1 < high) fetch_lines(column + (size_t)chunk * s * PACK, (TW * PACK * (int)sizeof(REAL) + 63) / 64);
#endif
#if IN_REGISTERS
                    ACCV pixels[TW];
                    #pragma unroll
                    for (int t = 0; t < TW; ++t) pixels[t] = LOADV(column, t * PACK);
                    multiply_tile(acc, (const ACC *)pixels, w, PACK);
#else
                    multiply_tile(acc, column, w, min(PACK, cg - b * PACK));
#endif
                    w += BLOCK;
                    column += (size_t)s * PACK;
                }
                if (SUSPEND_TILE(acc, i - i0, b0 > low, b1 < high)) continue;
                store_tile(acc, y, n, first, blocks, groups * ob, m, s, p0, 1, 0, TW EPILOGUE_ARGS);
            }
        }
    }
}
