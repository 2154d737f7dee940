// Windows over each channel by itself on channel-packed tensors: depthwise convolution and pooling. One work-item
// computes TW adjacent output columns of one block; each input column is loaded once and serves every tap that
// meets it. Needs KIND (0 max, 1 average, 2 lp, 3 depthwise convolution), KD KH KW (window), SD SH SW (stride), DD DH
// DW (dilation), and
//   RUN        window columns that one run of loads serves: KW, or 1 where dilation or size would make runs long
//   STEP       distance of the run's columns; divides SW and DW, or is SW where RUN == 1
//   MASK       1: the last block's lanes from `channels` on are set to zero
//   COUNT_PADS (average) pads count in the divisor;  P (lp) the exponent;  HAS_BIAS (depthwise)
// Weights: [blocks, KD*KH*KW, PACK]; bias: [blocks * PACK]. qd qh qw are the pads after the last element.
// A work-item does `span` adjacent tiles in turn. Grid: ceil(column tiles * oh * od / span), blocks, batch.
#ifndef TW
#define TW 4
#endif
#if KIND == 3
#define WEIGHT_PARAM global const REAL *restrict w,
#else
#define WEIGHT_PARAM
#endif
#include "include/aligned_blocks.cl"
#include "conv/optional_bias.cl"

#if KIND == 0
#define COMBINE(acc, v, k) max(acc, v)
#elif KIND == 1
#define COMBINE(acc, v, k) ((acc) + (v))
#elif KIND == 2 && P == 1
#define COMBINE(acc, v, k) ((acc) + fabs(v))
#elif KIND == 2 && P == 2
#define COMBINE(acc, v, k) fma(v, v, acc)
#elif KIND == 2
#define COMBINE(acc, v, k) ((acc) + pow(fabs(v), (ACCV)P))
#else
#define COMBINE(acc, v, k) MULADD(v, wv[k], acc)
#endif
#if KIND == 0
#define OUTSIDE ((ACCV)ACC_LOWEST)
#endif
#define COLUMNS (((TW - 1) * SW + (RUN - 1) * DW) / STEP + 1)
#define COLUMN_STEP STEP
#include "include/load_columns.cl"

#include "include/count_unpadded.cl"

kernel void channelwise_packed(global const REAL *restrict x, WEIGHT_PARAM BIAS_PARAM global REAL *restrict y, int span, int batch,
                               int blocks, int channels, int id, int ih, int iw, int od, int oh, int ow,
                               int pd, int ph, int pw, int qd, int qh, int qw EPILOGUE_PARAMS) {
    const int block = get_global_id(1), n = get_global_id(2);
    if (block >= blocks || n >= batch) return;
    const int tiles = (ow + TW - 1) / TW, begin = get_global_id(0) * span, end = min(begin + span, tiles * oh * od);
    for (int i = begin; i < end; ++i) {
        const int row = i / tiles, x0 = (i - row * tiles) * TW, oz = row / oh, oy = row - oz * oh;
        const int z0 = oz * SD - pd, y0 = oy * SH - ph;
        ACCV acc[TW];
        #pragma unroll
        for (int t = 0; t < TW; ++t) {
#if HAS_BIAS
            acc[t] = LOADV(bias, block * PACK);
#else
            acc[t] = OUTSIDE;
#endif
        }
        for (int kzy = 0; kzy < KD * KH; ++kzy) {
            const int iz = z0 + kzy / KH * DD, iy = y0 + kzy % KH * DH;
            if (iz < 0 || iz >= id || iy < 0 || iy >= ih) continue;
            const size_t line = (((size_t)(n * blocks + block) * id + iz) * ih + iy) * iw * PACK;
            for (int k0 = 0; k0 < KW; k0 += RUN) {
                ACCV run[COLUMNS];
                load_columns(run, x, line, x0 * SW - pw + k0 * DW, iw);
#if KIND == 3
                ACCV wv[RUN];
                #pragma unroll
                for (int k = 0; k < RUN; ++k) wv[k] = LOADV(w, ((size_t)(block * KD * KH + kzy) * KW + k0 + k) * PACK);
#endif
                #pragma unroll
                for (int k = 0; k < RUN; ++k) {
                    #pragma unroll
                    for (int t = 0; t < TW; ++t) acc[t] = COMBINE(acc[t], run[(t * SW + k * DW) / STEP], k);
                }
            }
        }

#if KIND == 1 && COUNT_PADS
        const int rows = inside(z0, DD, KD, -pd, id + qd) * inside(y0, DH, KH, -ph, ih + qh);
#elif KIND == 1
        const int rows = inside(z0, DD, KD, 0, id) * inside(y0, DH, KH, 0, ih);
#endif
        #pragma unroll
        for (int t = 0; t < TW; ++t) {
            if (x0 + t < ow) {
                const int at = row * ow + x0 + t, spatial = od * oh * ow;
                ACCV v = acc[t];
#if KIND == 1 && COUNT_PADS
                v *= (ACC)1 / (ACC)max(rows * inside((x0 + t) * SW - pw, DW, KW, -pw, iw + qw), 1);
#elif KIND == 1
                v *= (ACC)1 / (ACC)max(rows * inside((x0 + t) * SW - pw, DW, KW, 0, iw), 1);
#elif KIND == 2 && P == 2
                v = sqrt(v);
#elif KIND == 2 && P > 2
                v = pow(v, (ACCV)((ACC)1 / (ACC)P));
#endif
                v = EPILOGUE(v, n, block, at, blocks, spatial);
#if MASK
                v = MASK_LANES(v, channels - block * PACK);
#endif
                STOREV(y, ((size_t)(n * blocks + block) * spatial + at) * PACK, v);
            }
        }
    }
}
