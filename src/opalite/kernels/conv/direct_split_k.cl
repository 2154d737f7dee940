// Direct convolution on channel-packed tensors with split sums: SPLIT work-items add up a part of the taps and
// channels each and then their sums in local memory, so that a small image still fills a large GPU.
//   y[n, o, p] = bias[o] + sum over taps k and blocks b of x[n, b, p*S - pad + k*D] . w[o, k, b]
// A work-item computes TP positions, LX apart, of TB output blocks. Needs KD KH KW (filter), SD SH SW (stride), DD DH DW
// (dilation), HAS_BIAS, MASK (1: the last block's lanes from `m` on are set to zero).
// Weights: [groups, ceil(ob / TB), KD*KH*KW, ib, PACK, TB, PACK]; bias: [groups * ob * PACK], ib and ob counted in a group.
// Grid: (position tiles * LX, groups * ceil(ob / TB) * SPLIT); work-group: (LX, SPLIT).
#include "include/aligned_blocks.cl"
#include "conv/register_tile.cl"
#ifndef LX
#define LX 32
#define TP 1
#define SPLIT 4
#endif

__attribute__((reqd_work_group_size(LX, SPLIT, 1)))
kernel void conv_split(global const REAL *restrict x, global const REAL *restrict weights, BIAS_PARAM global REAL *restrict y,
                       int positions, int groups, int ib, int ob, int m, int id, int ih, int iw, int od, int oh, int ow,
                       int pd, int ph, int pw EPILOGUE_PARAMS) {
#if SPLIT > 1
    local ACCV parts[SPLIT * TP * TB * LX];
#endif
    const int lx = get_local_id(0), share = get_local_id(1), column = get_group_id(1);
    const int og = (ob + TB - 1) / TB, g = column / og, tile = column - g * og, first = g * ob + tile * TB;
    const int spatial = od * oh * ow, whole = id * ih * iw, p0 = get_group_id(0) * (LX * TP) + lx;
    const int terms = KD * KH * KW * ib, each = (terms + SPLIT - 1) / SPLIT, end = min((share + 1) * each, terms);
    global const REAL *w = weights + ((size_t)column * terms + share * each) * (PACK * TB * PACK);

    int3 corner[TP];
    int base[TP], at[TP];
    ACCV acc[TP * TB];
    #pragma unroll
    for (int t = 0; t < TP; ++t) {
        const int p = p0 + t * LX, n = p / spatial, s = p - n * spatial, row = s / ow, oz = row / oh;
        corner[t] = (int3)((s - row * ow) * SW - pw, (row - oz * oh) * SH - ph, oz * SD - pd);
        base[t] = p < positions ? (n * groups + g) * ib * whole : -1;
        #pragma unroll
        for (int j = 0; j < TB; ++j) acc[t * TB + j] = (ACCV)0;
    }
    for (int q = share * each; q < end;) {
        const int tap = q / ib, b0 = q - tap * ib, run = min(ib - b0, end - q);
        const int3 step = (int3)(tap % KW * DW, tap / KW % KH * DH, tap / (KW * KH) * DD);
        #pragma unroll
        for (int t = 0; t < TP; ++t) {
            const int3 p = corner[t] + step;
            const bool inside = p.x >= 0 && p.x < iw && p.y >= 0 && p.y < ih && p.z >= 0 && p.z < id && base[t] >= 0;
            at[t] = inside ? base[t] + b0 * whole + (p.z * ih + p.y) * iw + p.x : -1;
        }
        #pragma unroll UNROLL
        for (int b = 0; b < run; ++b) {
            // All loads come first, so that their latencies overlap.
            ACCV wv[PACK * TB], v[TP];
            #pragma unroll
            for (int i = 0; i < PACK * TB; ++i) wv[i] = LOADV(w, ((size_t)b * PACK * TB + i) * PACK);
            #pragma unroll
            for (int t = 0; t < TP; ++t) v[t] = at[t] >= 0 ? LOADV(x, ((size_t)at[t] + (size_t)b * whole) * PACK) : (ACCV)0;
            #pragma unroll
            for (int c = 0; c < PACK; ++c) {
                #pragma unroll
                for (int t = 0; t < TP; ++t) {
                    const ACCV lane = (ACCV)(((const ACC *)&v[t])[c]);
                    #pragma unroll
                    for (int j = 0; j < TB; ++j) acc[t * TB + j] = MULADD(lane, wv[c * TB + j], acc[t * TB + j]);
                }
            }
        }
        w += (size_t)run * (PACK * TB * PACK);
        q += run;
    }

#if SPLIT > 1
    #pragma unroll
    for (int v = 0; v < TP * TB; ++v) parts[(share * TP * TB + v) * LX + lx] = acc[v];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int v = share; v < TP * TB; v += SPLIT) {
        ACCV total = parts[v * LX + lx];
        #pragma unroll
        for (int k = 1; k < SPLIT; ++k) total += parts[(k * TP * TB + v) * LX + lx];
#else
    #pragma unroll
    for (int v = 0; v < TP * TB; ++v) {
        ACCV total = acc[v];
#endif
        const int p = p0 + v / TB * LX, n = p / spatial, s = p - n * spatial, block = first + v % TB, all = groups * ob;
        if (p < positions && tile * TB + v % TB < ob) {
#if HAS_BIAS
            total += LOADV(bias, block * PACK);
#endif
            total = EPILOGUE(total, n, block, s, all, spatial);
#if MASK
            total = MASK_LANES(total, m - block * PACK);
#endif
            STOREV(y, (((size_t)n * all + block) * spatial + s) * PACK, total);
        }
    }
}
