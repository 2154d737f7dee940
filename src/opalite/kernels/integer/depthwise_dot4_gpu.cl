// Depthwise convolution of 8-bit integers on channel-packed tensors, sums exact in int32:
//   y[n, c, o] = bias[c] + sum over k of (x[n, c, o*S - pad + k*D] - x_zero) * w[c, k]
// One work-item computes TW adjacent output columns of one block of PACK channels. Needs KD KH KW (filter), SD SH SW
// (stride), DD DH DW (dilation), HAS_BIAS, X_ZERO (0 none, 1 an argument, 2 in memory), MASK (lanes of the last
// block from `channels` on are set to zero), A_SIGNED (x). w, less its zero points: int[blocks, taps, PACK]; bias: int[blocks * PACK].
// Grid: ceil(ow / TW) * oh * od, blocks, batch.
#include "include/aligned_blocks.cl"
#ifndef TW
#define TW 2
#endif
#if A_SIGNED
#define BYTE char
#else
#define BYTE uchar
#endif
#define BYTES VEC_T(BYTE, PACK)
#define INTS VEC_T(int, PACK)
#define LOAD_INTS(p, i) (*(global const INTS *)((p) + (i)))
#if HAS_BIAS
#define BIAS_PARAM global const int *restrict bias,
#else
#define BIAS_PARAM
#endif
#if X_ZERO == 2
#define X_ZERO_PARAM global const BYTE *restrict x_zero,
#elif X_ZERO == 1
#define X_ZERO_PARAM int x_zero,
#else
#define X_ZERO_PARAM
#endif

kernel void integer_depthwise(global const BYTE *restrict x, global const int *restrict w, BIAS_PARAM X_ZERO_PARAM
                              global REAL *restrict y, int batch, int blocks, int channels, int id, int ih, int iw,
                              int od, int oh, int ow, int pd, int ph, int pw EPILOGUE_PARAMS) {
    const int block = get_global_id(1), n = get_global_id(2), tiles = (ow + TW - 1) / TW;
    const int row = get_global_id(0) / tiles, first = (get_global_id(0) - row * tiles) * TW;
    if (row >= oh * od || block >= blocks || n >= batch) return;
    const int oz = row / oh, oy = row - oz * oh;
#if X_ZERO == 2
    const INTS zero = (INTS)(int)x_zero[0];
#elif X_ZERO == 1
    const INTS zero = (INTS)x_zero;
#else
    const INTS zero = (INTS)0;
#endif
    INTS acc[TW];
    #pragma unroll
    for (int t = 0; t < TW; ++t) {
#if HAS_BIAS
        acc[t] = LOAD_INTS(bias, block * PACK);
#else
        acc[t] = (INTS)0;
#endif
    }
    w += (size_t)block * (KD * KH * KW) * PACK;
    for (int kzy = 0; kzy < KD * KH; ++kzy) {
        const int iz = oz * SD - pd + kzy / KH * DD, iy = oy * SH - ph + kzy % KH * DH;
        if (iz < 0 || iz >= id || iy < 0 || iy >= ih) continue;
        const size_t line = (((size_t)(n * blocks + block) * id + iz) * ih + iy) * iw;
        #pragma unroll
        for (int k = 0; k < KW; ++k) {
            const INTS f = LOAD_INTS(w, (kzy * KW + k) * PACK);
            #pragma unroll
            for (int t = 0; t < TW; ++t) {
                const int ix = (first + t) * SW - pw + k * DW;
                if (ix >= 0 && ix < iw) {
                    const BYTES v = *(global const BYTES *)(x + (line + ix) * PACK);
                    acc[t] += (CONVERT_N(PACK, int)(v) - zero) * f;
                }
            }
        }
    }
    #pragma unroll
    for (int t = 0; t < TW; ++t) {
        if (first + t < ow) {
            const int at = row * ow + first + t, spatial = od * oh * ow;
            ACCV v = EPILOGUE(acc[t], n, block, at, blocks, spatial);
#if MASK
            v = MASK_LANES(v, channels - block * PACK);
#endif
            STOREV(y, ((size_t)(n * blocks + block) * spatial + at) * PACK, v);
        }
    }
}
