// Transposed convolution into channel-packed blocks, gathered. Output columns that leave the same remainder (phase) by
// the stride meet the same filter columns, and neighbours among them adjacent inputs: one work-item computes tiles
// of TW columns of one phase of TB output blocks, as a direct convolution does.
//   y[n, o, p] = bias[o] + sum over b, c and k with (p + pad - k*D) divisible by S
//                          of x[n, b, (p + pad - k*D) / S][c] * w[group, tile, b, k, c, o]
// Needs KD KH KW (filter), SD SH SW (stride), DD DH DW (dilation), HAS_BIAS, MASK (1: the last block's lanes from `m`
// on are set to zero), IN_REGISTERS (1: unroll all of a block, which suits a GPU; 0: broadcast elements from memory,
// CPU), and IN_SUM_BLOCKS (1: add up sums of SUM_BLOCK terms, in registers of their own). Weights: [groups, ceil(ob / TB), ib, KD*KH*KW, PACK, TB, PACK]; bias: [groups * ob * PACK], ob and ib
// counted in a group, cg = channels of a group in x. A work-item does `span` adjacent tiles in turn.
// Grid: ceil(SW * tiles of a phase * oh * od / span), groups * ceil(ob / TB), batch.
#if IN_REGISTERS
#undef UNROLL
#define UNROLL PACK
#endif
#include "conv/register_tile.cl"
#define COLUMNS TW
#define COLUMN_STEP 1
#include "include/load_columns.cl"

kernel void conv_transpose_packed(global const REAL *restrict x, global const REAL *restrict weights,
                                  BIAS_PARAM global REAL *restrict y, int span, int batch, int groups, int cg, int ib, int ob,
                                  int m, int id, int ih, int iw, int od, int oh, int ow,
                                  int pd, int ph, int pw EPILOGUE_PARAMS) {
    const int og = (ob + TB - 1) / TB, g = get_global_id(1) / og, tile = get_global_id(1) - g * og;
    const int n = get_global_id(2);
    if (g >= groups || n >= batch) return;
    const int first = g * ob + tile * TB, blocks = min(TB, ob - tile * TB);
    const int tiles = ((ow + SW - 1) / SW + TW - 1) / TW;  // of one phase
    const int begin = get_global_id(0) * span, end = min(begin + span, SW * tiles * oh * od);
    global const REAL *w = weights + (size_t)get_global_id(1) * ib * (KD * KH * KW) * (PACK * TB * PACK);
    for (int i = begin; i < end; ++i) {
        const int row = i / (SW * tiles), phase = (i - row * SW * tiles) / tiles, oz = row / oh, oy = row - oz * oh;
        const int i0 = (i - (row * SW + phase) * tiles) * TW, x0 = i0 * SW + phase;
        ACCV acc[TW * TB];
        start_tile(acc, BIAS_ARG first, blocks);
#if IN_SUM_BLOCKS
        ACCV kept[TW * TB];
        size_t summed = 0;  // terms in acc
        bool done = false;
#endif
        for (int kzy = 0; kzy < KD * KH; ++kzy) {
            const int tz = oz + pd - kzy / KH * DD, ty = oy + ph - kzy % KH * DH, iz = tz / SD, iy = ty / SH;
            if (tz < 0 || tz % SD != 0 || iz >= id || ty < 0 || ty % SH != 0 || iy >= ih) continue;
            for (int k = 0; k < KW; ++k) {
                const int tx = phase + pw - k * DW;
                if (tx % SW != 0) continue;
                for (int b = 0; b < ib; ++b) {
                    const size_t line = ((((size_t)(n * groups + g) * ib + b) * id + iz) * ih + iy) * iw * PACK;
                    const size_t lanes = IN_REGISTERS ? PACK : min(PACK, cg - b * PACK);
                    ACCV staged[TW];
                    load_columns(staged, x, line, tx / SW + i0, iw);
                    multiply_tile(acc, (const ACC *)staged,
                                  w + ((size_t)b * KD * KH * KW + kzy * KW + k) * (PACK * TB * PACK), lanes);
#if IN_SUM_BLOCKS
                    if ((summed += lanes) < SUM_BLOCK) continue;
                    keep_tile(kept, acc, done, true);
                    clear_tile(acc);
                    summed = 0;
                    done = true;
#endif
                }
            }
        }
#if IN_SUM_BLOCKS
        keep_tile(kept, acc, done, false);
#endif
        store_tile(acc, y, n, first, blocks, groups * ob, m, od * oh * ow, row * ow + x0, SW, 0,
                   (ow - x0 + SW - 1) / SW EPILOGUE_ARGS);
    }
}
