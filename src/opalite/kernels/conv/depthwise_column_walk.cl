// Depthwise convolution of channel-packed tensors, by work-items that slide down columns: each computes TH rows of TW
// adjacent columns of one block, and keeps its filters and the rows of x that consecutive windows share. Rows
// and columns outside x read x's edge and count as zeros, so that no branch separates loads.
// Filters that fit the registers as well (HELD 1) are kept there, and loaded before waiting for earlier launches.
// Needs KH KW (filter), SH SW (stride, SH at most KH), HAS_BIAS, and
//   MASK       1: the last block's lanes from `channels` on are set to zero
// Weights: [blocks, KH*KW, PACK]; bias: [blocks * PACK]. Grid: column tiles * row tiles, blocks, batch.
#ifndef TW
#define TW 2
#define TH 4
#endif
#include "include/aligned_blocks.cl"
#include "include/async_constant_loads.cl"
#include "conv/optional_bias.cl"
#define COLUMNS ((TW - 1) * SW + KW)
#ifndef HELD
#define HELD 1
#endif
#define LOAD_FILTER(k) LOADV(w, ((size_t)own * (KH * KW) + (k)) * PACK)
#if HELD
#define FILTER(k) wv[k]
#else
#define FILTER(k) LOAD_FILTER(k)
#endif

kernel void depthwise_walk(global const REAL *restrict x, global const REAL *restrict w, BIAS_PARAM global REAL *restrict y,
                           int batch, int blocks, int channels, int ih, int iw, int oh, int ow, int ph, int pw EPILOGUE_PARAMS) {
    const int block = get_global_id(1), n = get_global_id(2), tiles = (ow + TW - 1) / TW, tile = get_global_id(0) / tiles;
    const int x0 = (get_global_id(0) - tile * tiles) * TW, first = tile * TH, end = min(first + TH, oh), spatial = oh * ow;
    const bool exists = block < blocks && n < batch && first < oh;
    const size_t channel = (size_t)n * blocks + block;
    x += channel * ih * iw * PACK;
    y += channel * spatial * PACK;
    ACCV rows[KH][COLUMNS];  // row j of this work-item is rows[j % KH]
    int at[COLUMNS];
    bool inside[COLUMNS];
    #pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
        const int column = x0 * SW - pw + c;
        inside[c] = column >= 0 && column < iw;
        at[c] = clamp(column, 0, iw - 1) * PACK;
    }
    const int own = min(block, blocks - 1);
#if HELD
    ACCV wv[KH * KW];
    #pragma unroll
    for (int k = 0; k < KH * KW; ++k) wv[k] = LOAD_FILTER(k);
#endif
#if HAS_BIAS
    const ACCV begin = LOADV(bias, own * PACK);
#else
    const ACCV begin = (ACCV)0;
#endif
    AWAIT;
    if (!exists) return;
#define LOAD_ROW(to, iy) do { \
        const int iy_ = (iy), line_ = clamp(iy_, 0, ih - 1) * iw * PACK; \
        const bool exists_ = iy_ >= 0 && iy_ < ih; \
        _Pragma("unroll") \
        for (int c_ = 0; c_ < COLUMNS; ++c_) { \
            const ACCV v_ = LOADV(x, line_ + at[c_]); \
            rows[to][c_] = exists_ && inside[c_] ? v_ : (ACCV)0; \
        } \
    } while (0)
    const int top = first * SH - ph;
    #pragma unroll
    for (int r = 0; r < KH - SH; ++r) LOAD_ROW(r, top + r);
    for (int o = 0; o < end - first; o += KH) {
        #pragma unroll
        for (int i = 0; i < KH; ++i) {
            if (i > 0 && o + i >= end - first) break;
            #pragma unroll
            for (int r = KH - SH; r < KH; ++r) LOAD_ROW((i * SH + r) % KH, top + (o + i) * SH + r);
            #pragma unroll
            for (int t = 0; t < TW; ++t) {
                ACCV acc = begin;
                #pragma unroll
                for (int k = 0; k < KH * KW; ++k)
                    acc = MULADD(rows[(i * SH + k / KW) % KH][t * SW + k % KW], FILTER(k), acc);
                if (x0 + t < ow) {
                    const int to = (first + o + i) * ow + x0 + t;
                    ACCV v = EPILOGUE(acc, n, block, to, blocks, spatial);
#if MASK
                    v = MASK_LANES(v, channels - block * PACK);
#endif
                    STOREV(y, (size_t)to * PACK, v);
                }
            }
        }
    }
}
