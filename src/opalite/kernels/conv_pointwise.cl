// 1x1 convolution of stride 1 on channel-packed tensors, a matrix product over the flattened positions: one work-item
// computes tiles of TW neighbouring positions of TB output blocks.
//   y[n, o, p] = bias[o] + sum over b, c of x[n, b, p][c] * w[group, tile, b, c, o]
// Needs HAS_BIAS, MASK (1: the last block's lanes from `m` on are set to zero), and IN_REGISTERS (1: load vectors of x
// and unroll all of a block, which suits a GPU; 0: broadcast single elements, which suits a CPU).
// Weights: [groups, ceil(ob / TB), ib, PACK, TB, PACK]; bias: [groups * ob * PACK], ob and ib counted in a group,
// cg = channels of a group in x, s = positions, at least TW. A work-item does `span` neighbouring tiles in turn.
// Grid: ceil(ceil(s / TW) / span), groups * ceil(ob / TB), batch.
#if IN_REGISTERS
#undef UNROLL
#define UNROLL PACK
#else
#define INPUT global const REAL *
#define ELEMENT(p, i) LOAD(p, i)
#endif
#include "conv_tile.cl"

kernel void conv_pointwise(global const REAL *restrict x, global const REAL *restrict weights,
                           BIAS_PARAM global REAL *restrict y, int span, int batch, int groups, int cg, int ib, int ob, int m,
                           int s EPILOGUE_PARAMS) {
    const int og = (ob + TB - 1) / TB, g = get_global_id(1) / og, tile = get_global_id(1) - g * og;
    const int n = get_global_id(2);
    if (g >= groups || n >= batch) return;
    const int first = g * ob + tile * TB, blocks = min(TB, ob - tile * TB);
    const int begin = get_global_id(0) * span, end = min(begin + span, (s + TW - 1) / TW);
    for (int i = begin; i < end; ++i) {
        // The last tile moves back to lie inside the tensor, and computes some of the tile before it once more.
        const int p0 = min(i * TW, s - TW);
        global const REAL *w = weights + (size_t)get_global_id(1) * ib * (PACK * TB * PACK);
        global const REAL *column = x + ((size_t)(n * groups + g) * ib * s + p0) * PACK;
        ACCV acc[TW * TB];
        start_tile(acc, BIAS_ARG first, blocks);
        for (int b = 0; b < ib; ++b) {
#if IN_REGISTERS
            ACCV pixels[TW];
            #pragma unroll
            for (int t = 0; t < TW; ++t) pixels[t] = LOADV(column, t * PACK);
            multiply_tile(acc, (const ACC *)pixels, w, PACK);
#else
            multiply_tile(acc, column, w, min(PACK, cg - b * PACK));
#endif
            w += PACK * TB * PACK;
            column += (size_t)s * PACK;
        }
        store_tile(acc, y, n, first, blocks, groups * ob, m, s, p0, 1, 0, TW EPILOGUE_ARGS);
    }
}
