// Convolution of 8-bit integers in one group, NC4HW4 to NC4HW4, sums exact in int32:
//   y[n, m, o] = bias[m] + sum over c, k of (x[n, c, o*S - pad + k*D] - x_zero) * (w[m, c, k] - w_zero[m])
// A word of x is four channels of one position; DOT4 multiplies it with the same four of a filter. A work-item sums TP
// positions, PX apart, by TC blocks of four output channels; SPLIT of them split the input's blocks and reduce in local
// memory. The products of the zero points are added at the end: sum xw - x_zero sum w - w_zero sum x + ..., where x is
// x_zero outside.
// Needs KD KH KW (filter), SD SH SW (stride), DD DH DW (dilation), POINTWISE (a 1x1 filter on x's own positions), HAS_START,
// X_ZERO (0 none, 1 known ahead of time and part of start, 2 in memory), W_ZERO, TAIL (channels of x's last block, 1 to 4),
// MASK (lanes of the last output block from m on are set to zero), A_SIGNED (x), B_SIGNED (w), DOT (integer/dot4.cl).
// Weights: uint4[ceil(ob / TC), taps, ib, TC], a uint for each output channel; zeros past the last. start (bias, and what
// zero points add), sums (of w less its zero point, over all taps) and w_zero: int4[ceil(ob / TC) * TC].
// Grid: ceil(positions / (PX * TP)) * PX, ceil(ob / (TC * CY)) * CY, SPLIT.
#include "integer/dot4.cl"
#include "include/aligned_blocks.cl"
#include "include/texel_buffer.cl"
#ifndef TP
#define TP 2
#define TC 2
#define PX 32
#define CY 4
#define SPLIT 1
#endif
#define TAPS (KD * KH * KW)
#if HAS_START
#define START_PARAM global const int4 *restrict start,
#else
#define START_PARAM
#endif
#if X_ZERO == 2
#define X_ZERO_PARAM global const A_BYTE *restrict x_zero, global const int4 *restrict sums,
#elif X_ZERO == 1
#define X_ZERO_PARAM int zero,
#else
#define X_ZERO_PARAM
#endif
#if W_ZERO
#define W_ZERO_PARAM global const int4 *restrict w_zero,
#else
#define W_ZERO_PARAM
#endif

__attribute__((reqd_work_group_size(PX, CY, SPLIT)))
kernel void conv_dot(global const uint *restrict x, QUADS(weights), START_PARAM X_ZERO_PARAM
                     W_ZERO_PARAM global REAL *restrict y, int positions, int ib, int ob, int m, int id, int ih, int iw,
                     int od, int oh, int ow, int pd, int ph, int pw EPILOGUE_PARAMS) {
    const int z = get_local_id(2), lx = get_local_id(0), tile = get_global_id(1), tiles = (ob + TC - 1) / TC;
    const int spatial = od * oh * ow, plane = id * ih * iw, first = get_group_id(0) * PX * TP + lx;
#if X_ZERO == 2
    const int zero = x_zero[0];
#elif X_ZERO == 0
    const int zero = 0;
#endif
    const uint outside = (uint)(zero & 0xff) * ONES;
    int image[TP], at[TP]; // word of block 0 of the image; position in the output
#if !POINTWISE
    int z0[TP], y0[TP], x0[TP];
#endif
    #pragma unroll
    for (int t = 0; t < TP; ++t) {
        const int p = min(first + t * PX, positions - 1), n = p / spatial;
        at[t] = p - n * spatial;
        image[t] = n * ib * plane;
#if !POINTWISE
        const int row = at[t] / ow;
        x0[t] = (at[t] - row * ow) * SW - pw;
        y0[t] = row % oh * SH - ph;
        z0[t] = row / oh * SD - pd;
#endif
    }
    int4 acc[TP][TC];
    int x_sum[TP];
    #pragma unroll
    for (int t = 0; t < TP; ++t) {
        x_sum[t] = 0;
        #pragma unroll
        for (int j = 0; j < TC; ++j) acc[t][j] = (int4)0;
    }
    size_t w = (size_t)min(tile, tiles - 1) * TAPS * ib * TC;
    for (int tap = 0; tap < TAPS; ++tap, w += ib * TC) {
        global const uint *from[TP];
        bool inside[TP];
        #pragma unroll
        for (int t = 0; t < TP; ++t) {
#if POINTWISE
            inside[t] = true;
            from[t] = x + image[t] + at[t];
#else
            const int ix = x0[t] + tap % KW * DW, iy = y0[t] + tap / KW % KH * DH, iz = z0[t] + tap / (KW * KH) * DD;
            inside[t] = ix >= 0 && ix < iw && iy >= 0 && iy < ih && iz >= 0 && iz < id;
            from[t] = x + image[t] + (inside[t] ? (iz * ih + iy) * iw + ix : 0);
#endif
        }
        #pragma unroll TURNS
        for (int b = z; b < ib; b += SPLIT) {
            uint v[TP];
            uint4 f[TC];
            #pragma unroll
            for (int t = 0; t < TP; ++t) {
                v[t] = from[t][b * plane];
#if !POINTWISE
                v[t] = inside[t] ? v[t] : outside;
#endif
            }
            #pragma unroll
            for (int j = 0; j < TC; ++j) f[j] = READ_QUAD(weights, w + b * TC + j);
            #pragma unroll
            for (int t = 0; t < TP; ++t) {
#if W_ZERO
                // Lanes past the last channel are zero inside x, but not in the padding.
                x_sum[t] = DOT4_SUM_A(TAIL < 4 && b == ib - 1 ? v[t] & (0xffffffffu >> (32 - 8 * TAIL)) : v[t], x_sum[t]);
#endif
                #pragma unroll
                for (int j = 0; j < TC; ++j) {
                    acc[t][j].s0 = DOT4(v[t], f[j].s0, acc[t][j].s0);
                    acc[t][j].s1 = DOT4(v[t], f[j].s1, acc[t][j].s1);
                    acc[t][j].s2 = DOT4(v[t], f[j].s2, acc[t][j].s2);
                    acc[t][j].s3 = DOT4(v[t], f[j].s3, acc[t][j].s3);
                }
            }
        }
    }
#if W_ZERO
    #pragma unroll
    for (int j = 0; j < TC; ++j) {
        const int4 less = w_zero[min(tile, tiles - 1) * TC + j];
        #pragma unroll
        for (int t = 0; t < TP; ++t) acc[t][j] -= less * x_sum[t];
    }
#endif
#if SPLIT > 1
    local int4 parts[SPLIT - 1][TP * TC][CY][PX];
    const int ly = get_local_id(1);
    if (z > 0) {
        #pragma unroll
        for (int i = 0; i < TP * TC; ++i) parts[z - 1][i][ly][lx] = acc[i / TC][i % TC];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (z > 0) return;
    #pragma unroll
    for (int s = 0; s < SPLIT - 1; ++s) {
        #pragma unroll
        for (int i = 0; i < TP * TC; ++i) acc[i / TC][i % TC] += parts[s][i][ly][lx];
    }
#endif
    #pragma unroll
    for (int j = 0; j < TC; ++j) {
        const int block = tile * TC + j;
        if (block >= ob) break;
        int4 first_sum = (int4)0;
#if HAS_START
        first_sum += start[block];
#endif
#if X_ZERO == 2
        first_sum -= zero * sums[block];
#endif
        #pragma unroll
        for (int t = 0; t < TP; ++t) {
            const int p = first + t * PX;
            if (p < positions) {
                const int n = p / spatial;
                ACCV v = EPILOGUE(acc[t][j] + first_sum, n, block, at[t], ob, spatial);
#if MASK
                v = MASK_LANES(v, m - block * PACK);
#endif
                STOREV(y, (((size_t)n * ob + block) * spatial + at[t]) * PACK, v);
            }
        }
    }
}
