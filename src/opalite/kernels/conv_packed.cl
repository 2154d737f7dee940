// Direct convolution into channel-packed blocks: one work-item computes tiles of TW neighbouring output columns of TB
// output blocks, accumulators in registers, input elements broadcast against vectors of PACK output channels.
//   y[n, o, p] = bias[o] + sum over b, k, c of x[n, b, p*S - pad + k*D][c] * w[group, tile, b, k, c, o]
// A run of input columns is first staged in private memory, padding as zeros, so that the inner loop checks no bounds.
// Needs KD KH KW (filter), SD SH SW (stride), DD DH DW (dilation), HAS_BIAS, and
//   IN_PACK   channels in a block of x: PACK, or 1 for a row-major x
//   RUN       filter columns that one staged run serves: KW, or 1 where dilation would make runs long
//   STEP      distance of staged columns; divides SW and DW, or is SW where RUN == 1
//   UNROLL    input channels in one turn of the inner loop
//   IN_REGISTERS  1: unroll all of a run, so that it stays in registers (GPU); 0: broadcast elements from memory (CPU)
//   MASK      1: the last block's lanes from `m` on are set to zero
// Weights: [groups, ceil(ob / TB), ib, KD*KH*KW, IN_PACK, TB, PACK]; bias: [groups * ob * PACK], ob and ib counted in a
// group, cg = channels of a group in x. A work-item does `span` neighbouring tiles in turn.
// Grid: ceil(column tiles * oh * od / span), groups * ceil(ob / TB), batch.
#define NEXT_PIXEL (SW / STEP * IN_PACK)
#if IN_REGISTERS
#undef UNROLL
#define UNROLL IN_PACK
#define RUN_UNROLL RUN
#else
#define RUN_UNROLL 1
#endif
#include "conv_tile.cl"
#define COLUMNS (((TW - 1) * SW + (RUN - 1) * DW) / STEP + 1)
#define COLUMN_STEP STEP
#define COLUMN_LANES IN_PACK
#include "load_columns.cl"

kernel void conv_packed(global const REAL *restrict x, global const REAL *restrict weights,
                        BIAS_PARAM global REAL *restrict y, int span, int batch, int groups, int cg, int ib, int ob, int m,
                        int id, int ih, int iw, int od, int oh, int ow, int pd, int ph, int pw EPILOGUE_PARAMS) {
    const int og = (ob + TB - 1) / TB, g = get_global_id(1) / og, tile = get_global_id(1) - g * og;
    const int n = get_global_id(2);
    if (g >= groups || n >= batch) return;
    const int first = g * ob + tile * TB, blocks = min(TB, ob - tile * TB);
    const int tiles = (ow + TW - 1) / TW, begin = get_global_id(0) * span, end = min(begin + span, tiles * oh * od);
    for (int i = begin; i < end; ++i) {
        const int row = i / tiles, oz = row / oh, oy = row - oz * oh;
        // The last tile moves back to lie inside the row, and computes some of the tile before it once more.
        const int x0 = min((i - row * tiles) * TW, ow - TW);
        global const REAL *w = weights + (size_t)get_global_id(1) * ib * (KD * KH * KW) * (IN_PACK * TB * PACK);
        ACCV acc[TW * TB];
        start_tile(acc, BIAS_ARG first, blocks);
        for (int b = 0; b < ib; ++b) {
#if IN_REGISTERS || IN_PACK == 1
            const size_t lanes = IN_PACK;
#else
            const size_t lanes = min(IN_PACK, cg - b * IN_PACK);
#endif
            for (int kzy = 0; kzy < KD * KH; ++kzy) {
                const int iz = oz * SD - pd + kzy / KH * DD, iy = oy * SH - ph + kzy % KH * DH;
                if (iz < 0 || iz >= id || iy < 0 || iy >= ih) {
                    w += KW * IN_PACK * TB * PACK;
                    continue;
                }
                const size_t line = ((((size_t)(n * groups + g) * ib + b) * id + iz) * ih + iy) * iw * IN_PACK;
                for (int k0 = 0; k0 < KW; k0 += RUN) {
                    COLUMN staged[COLUMNS];
                    load_columns(staged, x, line, x0 * SW - pw + k0 * DW, iw);
                    #pragma unroll RUN_UNROLL
                    for (int k = 0; k < RUN; ++k) {
                        multiply_tile(acc, (const ACC *)(staged + k * DW / STEP), w, lanes);
                        w += IN_PACK * TB * PACK;
                    }
                }
            }
        }
        store_tile(acc, y, n, first, blocks, groups * ob, m, od * oh * ow, row * ow + x0, 1, 0, TW EPILOGUE_ARGS);
    }
}
