// Transposed convolution of images, gathered. Output columns that leave the same remainder (phase) by the stride meet the same
// filter columns, and neighbours among them adjacent inputs: a work-item computes TW columns of one phase of TB blocks.
//   y[n, o, p] = bias[o] + sum over b, c and k with (p + pad - k*D) divisible by S
//                          of x[n, b, (p + pad - k*D) / S][c] * w[o, k, b, c]
// Filters and bias are images as in image/image_conv.cl. Needs KH KW (filter), SH SW (stride), DH DW (dilation), HAS_BIAS.
// ib, ob: blocks of x and y in a group; m: channels of y. Grid: SW * ceil(ceil(ow / SW) / TW), batch * oh,
// groups * ceil(ob / TB).
#include "image/image_conv_tile.cl"
#define COLUMN(ix) ((ix) < 0 || (ix) >= iw ? -1 : base + (ix))

kernel void image_conv_transpose(read_only image2d_t x, read_only image2d_t weights, BIAS_PARAM write_only image2d_t y,
                                 int groups, int ib, int ob, int m, int rows, int ih, int iw, int oh, int ow, int ph,
                                 int pw EPILOGUE_PARAMS) {
    const int tiles = ((ow + SW - 1) / SW + TW - 1) / TW, phase = get_global_id(0) / tiles;
    const int i0 = (get_global_id(0) - phase * tiles) * TW, x0 = i0 * SW + phase, row = get_global_id(1);
    const int og = (ob + TB - 1) / TB, g = get_global_id(2) / og, tile = (get_global_id(2) - g * og) * TB;
    const int first = g * ob + tile;
    if (phase >= SW || x0 >= ow || row >= rows || g >= groups) return;
    const int n = row / oh, oy = row - n * oh;
    ACCV acc[TB][TW];
    EACH_BLOCK {
        EACH_COLUMN acc[o][t] = START(first + o);
    }
    for (int ky = 0; ky < KH; ++ky) {
        const int ty = oy + ph - ky * DH, iy = ty / SH;
        if (ty < 0 || ty % SH != 0 || iy >= ih) continue;
        for (int kx = 0; kx < KW; ++kx) {
            const int tx = phase + pw - kx * DW;
            if (tx % SW != 0) continue;
            const int ix = tx / SW + i0;
            for (int b = 0; b < ib; ++b) {
                const int base = (g * ib + b) * iw;
                ACCV in[TW];
                EACH_COLUMN in[t] = READ_ACC(x, COLUMN(ix + t), n * ih + iy);
                ADD_TAP(acc, in, first, b, ky, kx)
            }
        }
    }
    STORE_SUMS(acc, SW)
}
