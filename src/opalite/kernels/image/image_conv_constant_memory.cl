// Convolution of tensors held as images with so few filters that they lie in constant memory: one work-item computes all
// channels of TW adjacent columns, so that a texel of x is read once for all of them.
//   y[n, o, p] = bias[o] + sum over b, k, c of x[n, b, p*S - pad + k*D][c] * w[b, k, c, o]
// weights: [IB, KH, KW, 4, TB, 4], TB being all blocks of y and IB those of x; bias as in image/image_conv.cl.
// Needs KH KW (filter), SH SW (stride), DH DW (dilation), HAS_BIAS, HALF_WEIGHTS.
// m: channels of y. Grid: ceil(ow / TW), batch * oh.
#ifndef IB
#define IB 1
#endif
#include "image/image_conv_tile.cl"
#if HALF_WEIGHTS
#define WEIGHT(i) vload_half4(i, weights)
#else
#define WEIGHT(i) vload4(i, weights)
#endif
#if defined(ACC_HALF)
#define WEIGHT_ACC(i) convert_half4(WEIGHT(i))
#else
#define WEIGHT_ACC(i) WEIGHT(i)
#endif

kernel void image_conv_constant(read_only image2d_t x, constant const REAL *weights, BIAS_PARAM write_only image2d_t y, int m,
                                int rows, int ih, int iw, int oh, int ow, int ph, int pw EPILOGUE_PARAMS) {
    const int x0 = get_global_id(0) * TW, row = get_global_id(1), n = row / oh, oy = row - n * oh;
    const int groups = 1, ob = TB, tile = 0, first = 0;
    if (x0 >= ow || row >= rows) return;
    ACCV acc[TB][TW];
    EACH_BLOCK {
        EACH_COLUMN acc[o][t] = START(o);
    }
    #pragma unroll
    for (int b = 0; b < IB; ++b) {
        #pragma unroll
        for (int ky = 0; ky < KH; ++ky) {
            const int iy = oy * SH - ph + ky * DH;
            if (iy < 0 || iy >= ih) continue;
            #pragma unroll
            for (int kx = 0; kx < KW; ++kx) {
                const int at = ((b * KH + ky) * KW + kx) * 4 * TB;
                ACCV in[TW];
                EACH_COLUMN {
                    const int ix = (x0 + t) * SW - pw + kx * DW;
                    in[t] = READ_ACC(x, ix < 0 || ix >= iw ? -1 : b * iw + ix, n * ih + iy);
                }
                EACH_BLOCK {
                    const ACCV w0 = WEIGHT_ACC(at + o), w1 = WEIGHT_ACC(at + TB + o);
                    const ACCV w2 = WEIGHT_ACC(at + 2 * TB + o), w3 = WEIGHT_ACC(at + 3 * TB + o);
                    EACH_COLUMN acc[o][t] = mad(in[t].w, w3, mad(in[t].z, w2, mad(in[t].y, w1, mad(in[t].x, w0, acc[o][t]))));
                }
            }
        }
    }
    STORE_SUMS(acc, 1)
}
