// Convolution of tensors held as images: one work-item computes TW adjacent columns of TB output blocks.
//   y[n, o, p] = bias[o] + sum over b, k, c of x[n, b, p*S - pad + k*D][c] * w[o, k, b, c]
// Filters are an image as in image/image_conv_tile.cl; bias is an image of one row of blocks.
// Needs KH KW (filter), SH SW (stride), DH DW (dilation), HAS_BIAS, and
//   BOUNDS   0: no tap of a computed position is outside x, as in 1x1 filters without padding
// ib, ob: blocks of x and y in a group; m: channels of y. Grid: ceil(ow / TW), batch * oh, groups * ceil(ob / TB).
#include "image/image_conv_tile.cl"
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
    EACH_BLOCK {
        EACH_COLUMN acc[o][t] = START(first + o);
    }
    for (int b = 0; b < ib; ++b) {
        const int base = (g * ib + b) * iw;
        for (int ky = 0; ky < KH; ++ky) {
            const int iy = oy * SH - ph + ky * DH;
            if (iy < 0 || iy >= ih) continue;
            for (int kx = 0; kx < KW; ++kx) {
                ACCV in[TW];
                EACH_COLUMN in[t] = READ_ACC(x, COLUMN((x0 + t) * SW - pw + kx * DW), n * ih + iy);
                ADD_TAP(acc, in, first, b, ky, kx)
            }
        }
    }
    STORE_SUMS(acc, 1)
}
