// Windows over each channel by itself on images: depthwise convolution and pooling. One work-item computes TW adjacent
// output columns of one block; each input column is read once and serves every tap that meets it.
// Needs KIND (0 max, 1 average, 2 lp, 3 depthwise convolution), KH KW (window), SH SW (stride), DH DW (dilation), and
//   RUN        window columns that one run of reads serves: KW, or 1 where dilation or size would make runs long
//   STEP       distance of the run's columns; divides SW and DW, or is SW where RUN == 1
//   COUNT_PADS (average) pads count in the divisor;  P (lp) the exponent;  HAS_BIAS (depthwise)
// Filters are an image of width KH*KW and height blocks; bias is an image of one row of blocks.
// rh, rw: the pads after the last element. Grid: ceil(ow / TW), batch * oh, blocks.
#ifndef TW
#define TW 4
#endif
#if KIND == 3
#define WEIGHT_PARAM read_only image2d_t weights,
#else
#define WEIGHT_PARAM
#endif
#if HAS_BIAS
#define BIAS_PARAM read_only image2d_t bias,
#else
#define BIAS_PARAM
#endif
#define LOADED (((TW - 1) * SW + (RUN - 1) * DW) / STEP + 1)

#if KIND == 0
#define OUTSIDE ((float4)(-INFINITY))
#define COMBINE(acc, v, k) max(acc, v)
#else
#define OUTSIDE ((float4)0)
#if KIND == 1
#define COMBINE(acc, v, k) ((acc) + (v))
#elif KIND == 3
#define COMBINE(acc, v, k) mad(v, w[k], acc)
#elif P == 1
#define COMBINE(acc, v, k) ((acc) + fabs(v))
#elif P == 2
#define COMBINE(acc, v, k) mad(v, v, acc)
#else
#define COMBINE(acc, v, k) ((acc) + pow(fabs(v), (float4)P))
#endif
#endif

// How many of k positions from `start`, `step` apart, lie in [low, high).
static inline int inside(int start, int step, int k, int low, int high) {
    const int first = start < low ? (low - start + step - 1) / step : 0;
    const int last = start < high ? min(k, (high - start + step - 1) / step) : 0;
    return max(last - first, 0);
}

kernel void image_channelwise(read_only image2d_t x, WEIGHT_PARAM BIAS_PARAM write_only image2d_t y, int blocks, int channels,
                              int rows, int ih, int iw, int oh, int ow, int ph, int pw, int rh, int rw EPILOGUE_PARAMS) {
    const int x0 = get_global_id(0) * TW, row = get_global_id(1), block = get_global_id(2);
    if (x0 >= ow || row >= rows || block >= blocks) return;
    const int n = row / oh, oy = row - n * oh, y0 = oy * SH - ph;
    float4 acc[TW];
    #pragma unroll
    for (int t = 0; t < TW; ++t) {
#if HAS_BIAS
        acc[t] = READ(bias, block, 0);
#else
        acc[t] = OUTSIDE;
#endif
    }
    for (int ky = 0; ky < KH; ++ky) {
        const int iy = y0 + ky * DH;
        if (iy < 0 || iy >= ih) continue;
        for (int k0 = 0; k0 < KW; k0 += RUN) {
            const int start = x0 * SW - pw + k0 * DW;
            float4 run[LOADED];
            #pragma unroll
            for (int s = 0; s < LOADED; ++s) {
                const int ix = start + s * STEP;
                run[s] = ix >= 0 && ix < iw ? READ(x, block * iw + ix, n * ih + iy) : OUTSIDE;
            }
#if KIND == 3
            float4 w[RUN];
            #pragma unroll
            for (int k = 0; k < RUN; ++k) w[k] = READ(weights, ky * KW + k0 + k, block);
#endif
            #pragma unroll
            for (int k = 0; k < RUN; ++k) {
                #pragma unroll
                for (int t = 0; t < TW; ++t) acc[t] = COMBINE(acc[t], run[(t * SW + k * DW) / STEP], k);
            }
        }
    }
#if KIND == 1 && COUNT_PADS
    const int high = inside(y0, DH, KH, -ph, ih + rh);
#elif KIND == 1
    const int high = inside(y0, DH, KH, 0, ih);
#endif
    #pragma unroll
    for (int t = 0; t < TW; ++t) {
        if (x0 + t >= ow) break;
        float4 v = acc[t];
#if KIND == 1 && COUNT_PADS
        v /= (float)max(high * inside((x0 + t) * SW - pw, DW, KW, -pw, iw + rw), 1);
#elif KIND == 1
        v /= (float)max(high * inside((x0 + t) * SW - pw, DW, KW, 0, iw), 1);
#elif KIND == 2 && P == 2
        v = sqrt(v);
#elif KIND == 2 && P > 2
        v = pow(v, (float4)(1.0f / P));
#endif
        v = EPILOGUE(v, n, block, oy, x0 + t, blocks, oh, ow);
        WRITE(y, block * ow + x0 + t, row, MASK_LANES(v, channels - block * 4));
    }
}
