// Transposed convolution from channel-packed blocks to a row-major output of few channels, gathered: one work-item
// computes groups of adjacent columns of TM channels, at once TW of those that leave the same remainder (phase) by
// the stride.
//   y[n, m, p] = bias[m] + sum over lanes c, b and k with (p + pad - k*D) divisible by S
//                          of x[n, b, (p + pad - k*D) / S][c] * w[tile, b, k, m, c]
// Needs KD KH KW (filter), SD SH SW (stride), DD DH DW (dilation), HAS_BIAS. Weights: [ceil(mt / TM), ib, KD*KH*KW, TM,
// PACK], bias: [mt]; mt output channels, ib input blocks. A work-item does `span` adjacent groups in turn.
// Grid: ceil(groups of a row * oh * od / span), ceil(mt / TM), batch.
#define GROUP ((PACK + SW * TW - 1) / (SW * TW) * (SW * TW))
#include "conv/few_channels_tile.cl"
#define COLUMNS TW
#define COLUMN_STEP 1
#include "include/load_columns.cl"

kernel void conv_transpose_last(global const REAL *restrict x, global const REAL *restrict weights,
                                BIAS_PARAM global REAL *restrict y, int span, int batch, int ib, int mt, int id, int ih, int iw,
                                int od, int oh, int ow, int pd, int ph, int pw EPILOGUE_PARAMS) {
    const int m0 = get_global_id(1) * TM, n = get_global_id(2);
    if (m0 >= mt || n >= batch) return;
    const int parts = (ow + GROUP - 1) / GROUP;
    const int begin = get_global_id(0) * span, end = min(begin + span, parts * oh * od);
    global const REAL *w = weights + (size_t)get_global_id(1) * ib * (KD * KH * KW) * (TM * PACK);
    for (int i = begin; i < end; ++i) {
        const int row = i / parts, x0 = (i - row * parts) * GROUP, oz = row / oh, oy = row - oz * oh;
        SUM sums[TM * GROUP];
        for (int part = 0; part < GROUP / TW; ++part) {
            const int phase = part % SW, t0 = part / SW * TW;
            ACCV acc[TW * TM];
            clear_lanes(acc);
#if IN_SUM_BLOCKS
            ACCV kept[TW * TM];
            clear_lanes(kept);
#endif
            for (int kzy = 0; kzy < KD * KH; ++kzy) {
                const int tz = oz + pd - kzy / KH * DD, ty = oy + ph - kzy % KH * DH, iz = tz / SD, iy = ty / SH;
                if (tz < 0 || tz % SD != 0 || iz >= id || ty < 0 || ty % SH != 0 || iy >= ih) continue;
                for (int k = 0; k < KW; ++k) {
                    const int tx = phase + pw - k * DW;
                    if (tx % SW != 0) continue;
                    for (int b = 0; b < ib; ++b) {
                        const size_t line = ((((size_t)n * ib + b) * id + iz) * ih + iy) * iw * PACK;
                        ACCV v[TW];
                        load_columns(v, x, line, tx / SW + x0 / SW + t0, iw);
                        multiply_lanes(acc, v, w + ((size_t)b * KD * KH * KW + kzy * KW + k) * (TM * PACK));
#if IN_SUM_BLOCKS
                        if ((b + 1) % SUM_BLOCK == 0) move_lanes(kept, acc);
#endif
                    }
                }
            }
#if IN_SUM_BLOCKS
            move_lanes(kept, acc);
            sum_lanes(sums, kept, t0 * SW + phase, SW);
#else
            sum_lanes(sums, acc, t0 * SW + phase, SW);
#endif
        }
        store_group(sums, BIAS_ARG y, n, m0, mt, od * oh * ow, row * ow + x0, min(GROUP, ow - x0) EPILOGUE_ARGS);
    }
}
