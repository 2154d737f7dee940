// Convolution from channel-packed blocks to a row-major output of few channels: one work-item computes groups of
// adjacent columns of TM channels, TW columns at once.
//   y[n, m, p] = bias[m] + sum over lanes c, b, k of x[n, b, p*S - pad + k*D][c] * w[tile, b, k, m, c]
// Needs KD KH KW (filter), SD SH SW (stride), DD DH DW (dilation), HAS_BIAS. Weights: [ceil(mt / TM), ib, KD*KH*KW, TM,
// PACK], bias: [mt]; mt output channels, ib input blocks. A work-item does `span` adjacent groups in turn.
// Grid: ceil(groups of a row * oh * od / span), ceil(mt / TM), batch.
#define GROUP ((PACK + TW - 1) / TW * TW)
#include "conv/few_channels_tile.cl"
#define COLUMNS TW
#define COLUMN_STEP SW
#include "include/load_columns.cl"

kernel void conv_last(global const REAL *restrict x, global const REAL *restrict weights,
                      BIAS_PARAM global REAL *restrict y, int span, int batch, int ib, int mt, int id, int ih, int iw,
                      int od, int oh, int ow, int pd, int ph, int pw EPILOGUE_PARAMS) {
    const int m0 = get_global_id(1) * TM, n = get_global_id(2);
    if (m0 >= mt || n >= batch) return;
    const int parts = (ow + GROUP - 1) / GROUP;
    const int begin = get_global_id(0) * span, end = min(begin + span, parts * oh * od);
    for (int i = begin; i < end; ++i) {
        const int row = i / parts, x0 = (i - row * parts) * GROUP, oz = row / oh, oy = row - oz * oh;
        SUM sums[TM * GROUP];
        for (int t0 = 0; t0 < GROUP && x0 + t0 < ow; t0 += TW) {
            global const REAL *w = weights + (size_t)get_global_id(1) * ib * (KD * KH * KW) * (TM * PACK);
            ACCV acc[TW * TM];
            clear_lanes(acc);
#if IN_SUM_BLOCKS
            ACCV kept[TW * TM];
            clear_lanes(kept);
#endif
            for (int b = 0; b < ib; ++b) {
                for (int kzy = 0; kzy < KD * KH; ++kzy) {
                    const int iz = oz * SD - pd + kzy / KH * DD, iy = oy * SH - ph + kzy % KH * DH;
                    if (iz < 0 || iz >= id || iy < 0 || iy >= ih) {
                        w += KW * TM * PACK;
                        continue;
                    }
                    const size_t line = ((((size_t)n * ib + b) * id + iz) * ih + iy) * iw * PACK;
                    for (int k = 0; k < KW; ++k) {
                        ACCV v[TW];
                        load_columns(v, x, line, (x0 + t0) * SW - pw + k * DW, iw);
                        multiply_lanes(acc, v, w);
                        w += TM * PACK;
                    }
                }
#if IN_SUM_BLOCKS
                if ((b + 1) % max(SUM_BLOCK / (KD * KH * KW), 1) == 0) move_lanes(kept, acc);
#endif
            }
#if IN_SUM_BLOCKS
            move_lanes(kept, acc);
            sum_lanes(sums, kept, t0, 1);
#else
            sum_lanes(sums, acc, t0, 1);
#endif
        }
        store_group(sums, BIAS_ARG y, n, m0, mt, od * oh * ow, row * ow + x0, min(GROUP, ow - x0) EPILOGUE_ARGS);
    }
}
