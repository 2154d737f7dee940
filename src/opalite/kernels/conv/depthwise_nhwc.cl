// Depthwise convolution of x[batch, ih, iw, channels]: a work-item computes TW adjacent columns of PACK channels, a
// multiple of which `channels` is. Each input column is loaded once for each row of the filter. Needs KH KW (filter),
// SH SW (stride), DH DW (dilation), HAS_BIAS.
// Weights: [KH * KW, channels]; bias: [channels]. Epilogue (rows): pixels are its rows. `lines` is batch * oh.
// Grid: channels / PACK, tiles of a line, lines.
#ifndef TW
#define TW 2
#define KH 3
#define KW 3
#define SH 1
#define SW 1
#define DH 1
#define DW 1
#define HAS_BIAS 0
#endif
#include "include/aligned_blocks.cl"
#include "conv/optional_bias.cl"
#define COLUMNS ((TW - 1) * SW + (KW - 1) * DW + 1)

kernel void depthwise_rows(global const REAL *restrict x, global const REAL *restrict w, BIAS_PARAM global REAL *restrict y,
                           int channels, int lines, int ih, int iw, int oh, int ow, int top, int left EPILOGUE_PARAMS) {
    const int c = get_global_id(0) * PACK, x0 = get_global_id(1) * TW, line = get_global_id(2);
    if (c >= channels || x0 >= ow || line >= lines) return;
    const int n = line / oh, y0 = (line - n * oh) * SH - top, left0 = x0 * SW - left;
    ACCV acc[TW];
    #pragma unroll
    for (int t = 0; t < TW; ++t) {
#if HAS_BIAS
        acc[t] = LOADV(bias, c);
#else
        acc[t] = (ACCV)0;
#endif
    }
    for (int i = 0; i < KH; ++i) {
        const int iy = y0 + i * DH;
        if (iy < 0 || iy >= ih) continue;
        const size_t row = ((size_t)n * ih + iy) * iw;
        ACCV run[COLUMNS];
        #pragma unroll
        for (int k = 0; k < COLUMNS; ++k) {
            run[k] = (ACCV)0;
            if (left0 + k >= 0 && left0 + k < iw) run[k] = LOADV(x, (row + left0 + k) * channels + c);
        }
        #pragma unroll
        for (int j = 0; j < KW; ++j) {
            const ACCV wv = LOADV(w, (size_t)(i * KW + j) * channels + c);
            #pragma unroll
            for (int t = 0; t < TW; ++t) acc[t] = MULADD(run[t * SW + j * DW], wv, acc[t]);
        }
    }
    #pragma unroll
    for (int t = 0; t < TW; ++t) {
        if (x0 + t >= ow) break;
        const int pixel = line * ow + x0 + t;
        const ACCV v = EPILOGUE(acc[t], pixel, c, lines * ow, channels);
        STOREV(y, (size_t)pixel * channels + c, v);
    }
}
