// Transposed convolution of any rank up to 3 on row-major tensors, gathered: one work-item computes TM output channels
// at one position from the input elements that scatter to it.
//   y[n, m, o] = bias[m] + sum over c and k with (o + pad - k*D) divisible by S
//                          of x[n, g(m)*cg + c, (o + pad - k*D) / S] * w[c, m, k]
// Needs KD KH KW (filter), SD SH SW (stride), DD DH DW (dilation), HAS_BIAS. Weights need not be constant.
// Grid: output positions, groups * ceil(mg / TM), batch.
#ifndef TM
#define TM 4
#endif
#include "conv/optional_bias.cl"
#include "include/sum_block.cl"

kernel void conv_transpose_direct(global const REAL *restrict x, global const REAL *restrict w,
                                  BIAS_PARAM global REAL *restrict y, int batch, int cg, int mg, int groups,
                                  int id, int ih, int iw, int od, int oh, int ow,
                                  int pd, int ph, int pw EPILOGUE_PARAMS) {
    const int o = get_global_id(0), mb = get_global_id(1), n = get_global_id(2);
    const int blocks = (mg + TM - 1) / TM, g = mb / blocks, m0 = (mb - g * blocks) * TM;
    if (o >= od * oh * ow || g >= groups || n >= batch) return;
    const int ox = o % ow, oy = o / ow % oh, oz = o / (ow * oh);
    const int taps = KD * KH * KW;
    ACC acc[TM], total[TM];
    int summed = 0;  // terms in acc
    int row[TM];  // filter of each channel; channels past the group's end repeat its last
    for (int t = 0; t < TM; ++t) {
        acc[t] = total[t] = 0;
        row[t] = min(m0 + t, mg - 1) * taps;
    }
    for (int kz = 0; kz < KD; ++kz) {
        const int tz = oz + pd - kz * DD, iz = tz / SD;
        if (tz < 0 || tz % SD != 0 || iz >= id) continue;
        for (int ky = 0; ky < KH; ++ky) {
            const int ty = oy + ph - ky * DH, iy = ty / SH;
            if (ty < 0 || ty % SH != 0 || iy >= ih) continue;
            for (int kx = 0; kx < KW; ++kx) {
                const int tx = ox + pw - kx * DW, ix = tx / SW;
                if (tx < 0 || tx % SW != 0 || ix >= iw) continue;
                const int k = (kz * KH + ky) * KW + kx;
                for (int c = 0; c < cg; ++c) {
                    const size_t channel = n * groups * cg + g * cg + c, filters = (size_t)(g * cg + c) * mg * taps;
                    const ACC v = LOAD(x, ((channel * id + iz) * ih + iy) * iw + ix);
                    for (int t = 0; t < TM; ++t) acc[t] += v * LOAD(w, filters + row[t] + k);
                    if (++summed < SUM_BLOCK) continue;
                    summed = 0;
                    for (int t = 0; t < TM; ++t) {
                        total[t] += acc[t];
                        acc[t] = 0;
                    }
                }
            }
        }
    }
    for (int t = 0; t < TM && m0 + t < mg; ++t) {
        const int m = g * mg + m0 + t;
        acc[t] += total[t];
#if HAS_BIAS
        acc[t] += LOAD(bias, m);
#endif
        const ACC v = EPILOGUE1(acc[t], n, m, o, groups * mg, od * oh * ow);
        STORE(y, (size_t)(n * groups * mg + m) * (od * oh * ow) + o, v);
    }
}
