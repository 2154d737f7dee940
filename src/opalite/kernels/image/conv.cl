// Convolution of tensors held as images: one work-item computes TW neighbouring columns of TB output blocks.
//   y[n, o, p] = bias[o] + sum over b, k, c of x[n, b, p*S - pad + k*D][c] * w[o, k, b, c]
// Filters are an image of width ib * 4 and height blocks * KH*KW: texel (b * 4 + c, o * KH*KW + k) holds the weights of
// input channel c of block b and tap k for the four channels of output block o; bias is an image of one row of blocks.
// Needs KH KW (filter), SH SW (stride), DH DW (dilation), HAS_BIAS, and
//   BOUNDS   0: no tap of a computed position lies outside x, as in 1x1 filters without padding
// ib, ob: blocks of x and y in a group; m: channels of y. Grid: ceil(ow / TW), batch * oh, groups * ceil(ob / TB).
#ifndef TW
#define TW 4
#define TB 1
#endif
#if HAS_BIAS
#define BIAS_PARAM read_only image2d_t bias,
#define START(o) READ_ACC(bias, o, 0)
#else
#define BIAS_PARAM
#define START(o) ((ACCV)0)
#endif
#if BOUNDS
#define COLUMN(ix) ((ix) < 0 || (ix) >= iw ? -1 : base + (ix))
#else
#define COLUMN(ix) (base + (ix))
#endif

kernel void image_conv(read_only image2d_t x, read_only image2d_t weights, BIAS_PARAM write_only image2d_t y, int groups,
                       int ib, int ob, int m, int rows, int ih, int iw, int oh, int ow, int ph, int pw EPILOGUE_PARAMS) {
    const int x0 = get_global_id(0) * TW, row = get_global_id(1), og = (ob + TB - 1) / TB;
    const int g = get_global_id(2) / og, tile = (get_global_id(2) - g * og) * TB, first = g * ob + tile;
    if (x0 >= ow || row >= rows || g >= groups) return;
    const int n = row / oh, oy = row - n * oh;
    ACCV acc[TB][TW];
    #pragma unroll
    for (int o = 0; o < TB; ++o) {
        #pragma unroll
        for (int t = 0; t < TW; ++t) acc[o][t] = START(first + o);
    }
    for (int b = 0; b < ib; ++b) {
        const int base = (g * ib + b) * iw;
        for (int ky = 0; ky < KH; ++ky) {
            const int iy = oy * SH - ph + ky * DH;
            if (iy < 0 || iy >= ih) continue;
            for (int kx = 0; kx < KW; ++kx) {
                ACCV in[TW];
                #pragma unroll
                for (int t = 0; t < TW; ++t) in[t] = READ_ACC(x, COLUMN((x0 + t) * SW - pw + kx * DW), n * ih + iy);
                #pragma unroll
                for (int o = 0; o < TB; ++o) {
                    const int at = ((first + o) * KH + ky) * KW + kx;
                    const ACCV w0 = READ_ACC(weights, b * 4, at), w1 = READ_ACC(weights, b * 4 + 1, at);
                    const ACCV w2 = READ_ACC(weights, b * 4 + 2, at), w3 = READ_ACC(weights, b * 4 + 3, at);
                    #pragma unroll
                    for (int t = 0; t < TW; ++t) {
                        acc[o][t] = mad(in[t].x, w0, acc[o][t]);
                        acc[o][t] = mad(in[t].y, w1, acc[o][t]);
                        acc[o][t] = mad(in[t].z, w2, acc[o][t]);
                        acc[o][t] = mad(in[t].w, w3, acc[o][t]);
                    }
                }
            }
        }
    }
    const int blocks = groups * ob;
    #pragma unroll
    for (int o = 0; o < TB; ++o) {
        const int block = first + o;
        if (tile + o >= ob) break;
        #pragma unroll
        for (int t = 0; t < TW; ++t) {
            if (x0 + t >= ow) break;
            const ACCV v = EPILOGUE(acc[o][t], n, block, oy, x0 + t, blocks, oh, ow);
            WRITE_ACC(y, block * ow + x0 + t, row, MASK_LANES(v, m - block * 4));
        }
    }
}
