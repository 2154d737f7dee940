// Convolution of any rank up to 3 on row-major tensors with vectors of PACK adjacent output columns: one work-item
// computes TV vectors of TM output channels, filter elements broadcast. Weights need not be constant.
//   y[n, m, o] = bias[m] + sum over c, k of x[n, g(m)*cg + c, o*S - pad + k*D] * w[m, c, k]
// Needs KD KH KW (filter), SD SH SW (stride), DD DH DW (dilation), HAS_BIAS, and RUN, the filter columns that one
// staged run of input columns serves: KW, or 1 where dilation would make runs long. A work-item does `span`
// adjacent tiles in turn.
// Grid: ceil(tiles of a row * oh * od / span), groups * ceil(mg / TM), batch.
#ifndef TV
#define TV 1
#endif
#ifndef TM
#define TM 4
#endif
#include "conv/optional_bias.cl"
#include "include/sum_block.cl"
#define STAGED ((TV * PACK - 1) * SW + (RUN - 1) * DW + 1)
#define SPARE (2 * PACK)  // padding after the run for vector loads that exceed it

// Every SW-th element from p on, PACK of them.
#if SW == 1
#define GATHER(p) VLOAD(PACK, 0, p)
#elif SW == 2 && PACK > 1
#define GATHER(p) ((ACCV)(VLOAD(PACK, 0, p).even, VLOAD(PACK, PACK, p).even))
#else
static inline ACCV gather(const ACC *p) {
    ACC lanes[PACK];
    for (int i = 0; i < PACK; ++i) lanes[i] = p[i * SW];
    return VLOAD(PACK, 0, lanes);
}
#define GATHER(p) gather(p)
#endif

// Columns start, start + 1... of the row of iw columns that begins at element `line` of x; zeros outside.
static inline void stage_run(ACC *run, global const REAL *restrict x, size_t line, int start, int iw) {
    if (start >= 0 && start + STAGED + PACK <= iw) {
        for (int i = 0; i < STAGED; i += PACK) {
            const ACCV v = LOADV(x, line + start + i);
            VSTORE(PACK, v, i, run);
        }
        return;
    }
    const int first = clamp(-start, 0, STAGED), last = clamp(iw - start, first, STAGED);
    for (int i = 0; i < STAGED; i += PACK) VSTORE(PACK, (ACCV)0, i, run);
    int i = first;
    for (; i + PACK <= last; i += PACK) {
        const ACCV v = LOADV(x, line + start + i);
        VSTORE(PACK, v, i, run);
    }
    if (i > first && i < last) {  // the last PACK columns, some of them again
        const ACCV v = LOADV(x, line + start + last - PACK);
        VSTORE(PACK, v, last - PACK, run);
        i = last;
    }
    for (; i < last; ++i) run[i] = LOAD(x, line + start + i);
}

// v with zeros in the lanes before `first` and from `end` on.
#define IS_WITHIN(first, end) ((LANES >= (int)(first)) & (LANES < (int)(end)))
#if PACK == 1
#define WITHIN(v, first, end) ((first) <= 0 && (end) > 0 ? v : (ACC)0)
#else
#define WITHIN(v, first, end) select((ACCV)0, v, CAT(WITHIN_, ACC)(first, end))
#define WITHIN_float(first, end) IS_WITHIN(first, end)
#define WITHIN_int(first, end) IS_WITHIN(first, end)
#define WITHIN_uint(first, end) IS_WITHIN(first, end)
#define WITHIN_half(first, end) CONVERT_N(PACK, short)(IS_WITHIN(first, end))
#define WITHIN_double(first, end) CONVERT_N(PACK, long)(IS_WITHIN(first, end))
#define WITHIN_long(first, end) CONVERT_N(PACK, long)(IS_WITHIN(first, end))
#define WITHIN_ulong(first, end) CONVERT_N(PACK, long)(IS_WITHIN(first, end))
#endif

// Adds the products of columns v, for filter element k of each channel.
#define ADD_PRODUCTS(k) \
    _Pragma("unroll") for (int j = 0; j < TM; ++j) { \
        const ACCV wv = (ACCV)LOAD(wk, filter[j] + k); \
        _Pragma("unroll") for (int t = 0; t < TV; ++t) acc[t * TM + j] = MULADD(v[t], wv, acc[t * TM + j]); \
    }

kernel void conv_rows(global const REAL *restrict x, global const REAL *restrict w,
                      BIAS_PARAM global REAL *restrict y, int span, int cg, int mg, int groups, int batch,
                      int id, int ih, int iw, int od, int oh, int ow, int pd, int ph, int pw EPILOGUE_PARAMS) {
    const int blocks = (mg + TM - 1) / TM, g = get_global_id(1) / blocks, m0 = (get_global_id(1) - g * blocks) * TM;
    if (g >= groups) return;
    const size_t size = (size_t)batch * groups * cg * id * ih * iw;
    const int n = get_global_id(2), taps = KD * KH * KW, channels = groups * mg, spatial = od * oh * ow;
    const int tiles = (ow + TV * PACK - 1) / (TV * PACK);
    const int begin = get_global_id(0) * span, end = min(begin + span, tiles * oh * od);
    size_t filter[TM];  // first weight of each channel; channels past the group's end repeat its last
    #pragma unroll
    for (int j = 0; j < TM; ++j) filter[j] = (size_t)(g * mg + min(m0 + j, mg - 1)) * cg * taps;
    for (int i = begin; i < end; ++i) {
        const int row = i / tiles, x0 = (i - row * tiles) * TV * PACK, oz = row / oh, oy = row - oz * oh;
        ACCV acc[TV * TM];
        #pragma unroll
        for (int j = 0; j < TM; ++j) {
#if HAS_BIAS
            const ACCV start = (ACCV)LOAD(bias, g * mg + min(m0 + j, mg - 1));
#else
            const ACCV start = (ACCV)0;
#endif
            #pragma unroll
            for (int t = 0; t < TV; ++t) acc[t * TM + j] = start;
        }
        ACCV total[TV * TM];
        int summed = 0;  // terms in acc
        #pragma unroll
        for (int t = 0; t < TV * TM; ++t) total[t] = (ACCV)0;
        for (int c = 0; c < cg; ++c) {
            if ((summed += taps) > SUM_BLOCK) {
                summed = taps;
                #pragma unroll
                for (int t = 0; t < TV * TM; ++t) {
                    total[t] += acc[t];
                    acc[t] = (ACCV)0;
                }
            }
            for (int kzy = 0; kzy < KD * KH; ++kzy) {
                const int iz = oz * SD - pd + kzy / KH * DD, iy = oy * SH - ph + kzy % KH * DH;
                if (iz < 0 || iz >= id || iy < 0 || iy >= ih) continue;
                const size_t line = ((((size_t)(n * groups + g) * cg + c) * id + iz) * ih + iy) * iw;
                for (int k0 = 0; k0 < KW; k0 += RUN) {
                    const int start = x0 * SW - pw + k0 * DW;
                    global const REAL *wk = w + (size_t)c * taps + kzy * KW + k0;
                    ACCV v[TV];
#if SW == 1
                    // In place: a run that was just staged is read before the core has stored it.
                    if (start >= 0 && start + STAGED <= iw) {
                        #pragma unroll 1
                        for (int k = 0; k < RUN; ++k) {
                            #pragma unroll
                            for (int t = 0; t < TV; ++t) v[t] = LOADV(x, line + start + t * PACK + k * DW);
                            ADD_PRODUCTS(k)
                        }
                        continue;
                    }
                    if (start >= -(long)line && line + start + STAGED <= size) {  // the neighbouring rows are memory
                        #pragma unroll 1
                        for (int k = 0; k < RUN; ++k) {
                            #pragma unroll
                            for (int t = 0; t < TV; ++t) {
                                const int column = start + t * PACK + k * DW;
                                const ACCV all = LOADV(x, line + column);
                                v[t] = WITHIN(all, -column, iw - column);
                            }
                            ADD_PRODUCTS(k)
                        }
                        continue;
                    }
#endif
                    ACC run[STAGED + SPARE];
                    stage_run(run, x, line, start, iw);
                    #pragma unroll 1
                    for (int k = 0; k < RUN; ++k) {
                        #pragma unroll
                        for (int t = 0; t < TV; ++t) v[t] = GATHER(run + t * PACK * SW + k * DW);
                        ADD_PRODUCTS(k)
                    }
                }
            }
        }
        #pragma unroll
        for (int t = 0; t < TV * TM; ++t) acc[t] += total[t];
        #pragma unroll
        for (int j = 0; j < TM; ++j) {
            if (m0 + j < mg) {
                const int m = g * mg + m0 + j;
                #pragma unroll
                for (int t = 0; t < TV; ++t) {
                    const int column = x0 + t * PACK, at = row * ow + column;
                    const size_t to = ((size_t)n * channels + m) * spatial + at;
                    if (column + PACK <= ow) {
                        const ACCV v = EPILOGUE(acc[t * TM + j], n, m, at, channels, spatial);
                        STOREV(y, to, v);
                    } else {
                        ACC lanes[PACK];
                        VSTORE(PACK, acc[t * TM + j], 0, lanes);
                        for (int s = 0; column + s < ow; ++s) {
                            const ACC v = EPILOGUE1(lanes[s], n, m, at + s, channels, spatial);
                            STORE(y, to + s, v);
                        }
                    }
                }
            }
        }
    }
}
