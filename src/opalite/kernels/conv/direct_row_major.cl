// Convolution of any rank up to 3 on row-major tensors: one work-item computes TM output channels at one position.
//   y[n, m, o] = bias[m] + sum over c, k of x[n, g(m)*cg + c, o*S - pad + k*D] * w[m, c, k]
// Needs KD KH KW (filter), SD SH SW (stride), DD DH DW (dilation), HAS_BIAS. Weights need not be constant.
// Grid: output positions, groups * ceil(mg / TM), batch.
#ifndef TM
#define TM 4
#endif
#include "conv/optional_bias.cl"
#include "include/sum_block.cl"

kernel void conv_direct(global const REAL *restrict x, global const REAL *restrict w,
                        BIAS_PARAM global REAL *restrict y, int batch, int cg, int mg, int groups,
                        int id, int ih, int iw, int od, int oh, int ow, int pd, int ph, int pw EPILOGUE_PARAMS) {
    const int o = get_global_id(0), mb = get_global_id(1), n = get_global_id(2);
    const int blocks = (mg + TM - 1) / TM, g = mb / blocks, m0 = (mb - g * blocks) * TM;
    if (o >= od * oh * ow || g >= groups || n >= batch) return;
    const int ox = o % ow, oy = o / ow % oh, oz = o / (ow * oh);
    const int x0 = ox * SW - pw, y0 = oy * SH - ph, z0 = oz * SD - pd;
    const int taps = KD * KH * KW;
    ACC acc[TM], total[TM];
    int summed = 0;  // terms in acc
    size_t row[TM];  // first weight of each channel; channels past the group's end repeat its last
    for (int t = 0; t < TM; ++t) {
        acc[t] = total[t] = 0;
        row[t] = (size_t)(g * mg + min(m0 + t, mg - 1)) * cg * taps;
    }
    for (int c = 0; c < cg; ++c) {
        if ((summed += taps) > SUM_BLOCK) {
            summed = taps;
            for (int t = 0; t < TM; ++t) {
                total[t] += acc[t];
                acc[t] = 0;
            }
        }
        const size_t plane = (size_t)(n * groups * cg + g * cg + c) * id * ih * iw;
        for (int kz = 0; kz < KD; ++kz) {
            const int iz = z0 + kz * DD;
            if (iz < 0 || iz >= id) continue;
            for (int ky = 0; ky < KH; ++ky) {
                const int iy = y0 + ky * DH;
                if (iy < 0 || iy >= ih) continue;
                for (int kx = 0; kx < KW; ++kx) {
                    const int ix = x0 + kx * DW;
                    if (ix < 0 || ix >= iw) continue;
                    const ACC v = LOAD(x, plane + ((size_t)iz * ih + iy) * iw + ix);
                    const int k = (c * KD + kz) * KH * KW + ky * KW + kx;
                    for (int t = 0; t < TM; ++t) acc[t] += v * LOAD(w, row[t] + k);
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
