// Convolution of 8-bit integers from channel-packed blocks to channel-packed blocks, sums exact in int32, on CPUs: four
// products to a lane's instruction (include/dot4_bytes.cl).
//   y[n, m, o] = bias[m] + sum over c, k of (x[n, c, o*S - pad + k*D] - x_zero) * (w[m, c, k] - w_zero[m])
// A work-item computes tiles of TW adjacent output columns of TB blocks of PACK channels, their sums in registers; a word
// of x, four channels of a pixel, is multiplied with vectors of the same four of each output channel. Columns of x are staged in private
// memory, those outside as x's zero point, so that the inner loop checks no bounds; where a filter is 1x1 and x unsigned they
// are read in place.
// Needs KD KH KW (filter), SD SH SW (stride), DD DH DW (dilation), and
//   X_WORDS    words of a pixel in a block of x        POINTWISE  a 1x1 filter on x's own positions, which are all one row
//   RUN STEP   as conv/direct_packed.cl has them              A_SIGNED X_ZERO  see integer/zero_point_params.cl
//   W_ZERO     filters have zero points (w_zero, shifted as they are)
//   MASK       1: the last block's lanes from `m` on are set to zero
//   BANDED     see conv/grouped_band.cl                        NARROW     1: rows may be shorter than TW columns
// Weights: [groups, ceil(ob / TB), ib, KD*KH*KW, X_WORDS, TB, PACK] words of signed bytes, zeros past the last; start (bias, and
// what zero points that are known add), sums (of filters less their zero points, over all taps) and w_zero: int[groups * ob *
// PACK]. ob and ib are counted in a group, cg = channels of a group in x. A work-item does `span` adjacent tiles in turn.
// Grid: ceil(column tiles * oh * od / span), groups * ceil(ob / TB), batch.
#include "include/dot4_bytes.cl"
#include "include/aligned_blocks.cl"
#include "include/prefetch.cl"
#include "conv/grouped_band.cl"
#ifndef TW
#define TW 6
#define TB 4
#define A_SIGNED 0
#define X_ZERO 0
#define W_ZERO 0
#define X_WORDS 4
#define NARROW 0
#define POINTWISE 0
#define RUN 1
#define STEP 1
#endif
#include "integer/zero_point_params.cl"
#if W_ZERO
#define W_ZERO_PARAM global const int *restrict w_zero,
#else
#define W_ZERO_PARAM
#endif
#define PIXEL VEC_T(uint, X_WORDS)
#define COLUMNS (((TW - 1) * SW + (RUN - 1) * DW) / STEP + 1)
#define AHEAD (64 * 16) // words: a page

// Columns start, start + STEP... of a row of iw pixels, those outside it as `outside`.
static inline void stage_columns(PIXEL *staged, global const PIXEL *row, int start, int iw, PIXEL outside) {
    if (start >= 0 && start + (COLUMNS - 1) * STEP < iw) {
        #pragma unroll
        for (int t = 0; t < COLUMNS; ++t) staged[t] = row[start + t * STEP] ^ (PIXEL)FLIP;
    } else {
        #pragma unroll
        for (int t = 0; t < COLUMNS; ++t) {
            const int ix = start + t * STEP;
            staged[t] = outside;
            if (ix >= 0 && ix < iw) staged[t] = row[ix] ^ (PIXEL)FLIP;
        }
    }
}

// Add `words` words of the pixels of a tile, which lie `next` words apart. last: the bytes of the last one that are channels.
#define MULTIPLY(columns, next, w, words, last) \
    _Pragma("unroll 1") \
    for (int u = 0; u < (words); ++u, w += TB * PACK) { \
        WORDS f[TB]; \
        _Pragma("unroll") \
        for (int j = 0; j < TB; ++j) { \
            f[j] = *(global const words_at *)(w + j * PACK); \
            PREFETCH(w + j * PACK + AHEAD); \
        } \
        const WORDS each = (WORDS)(u + 1 < (words) ? 0x01010101u : (last)); \
        _Pragma("unroll") \
        for (int t = 0; t < TW; ++t) { \
            const WORDS own = (WORDS)((columns)[t * (next) + u]); \
            if (W_ZERO) x_sum[W_ZERO * t] = dot_fours(x_sum[W_ZERO * t], own, each); \
            _Pragma("unroll") \
            for (int j = 0; j < TB; ++j) acc[t * TB + j] = dot_fours(acc[t * TB + j], own, f[j]); \
        } \
    }

__attribute__((reqd_work_group_size(1, 1, 1)))
kernel void conv_fours(global const uint *restrict x, global const uint *restrict weights, global const int *restrict start,
                       X_ZERO_PARAM W_ZERO_PARAM global REAL *restrict y, int span, int batch, int groups, int cg, int ib,
                       int ob, int m, BAND_PARAMS int id, int ih, int iw, int od, int oh, int ow, int pd, int ph, int pw
                       EPILOGUE_PARAMS) {
    const int og = (ob + TB - 1) / TB, g = get_global_id(1) / og, tile = get_global_id(1) - g * og;
    const int n = get_global_id(2);
    if (g >= groups || n >= batch) return;
    const int first = g * ob + tile * TB, blocks = min(TB, ob - tile * TB), taps = KD * KH * KW;
    const int tiles = (ow + TW - 1) / TW, begin = get_global_id(0) * span, end = min(begin + span, tiles * oh * od);
    OWN_ZERO
    const PIXEL outside = (PIXEL)((uint)((zero + SHIFT) & 0xff) * 0x01010101u);
    const int low = BAND_BEGIN(tile * TB * PACK) / (4 * X_WORDS);
    const int high = (BAND_END(min((tile + 1) * TB * PACK, m / groups), ib * (4 * X_WORDS)) + 4 * X_WORDS - 1) / (4 * X_WORDS);
    global const uint *filters = weights + ((size_t)get_global_id(1) * ib + low) * taps * (X_WORDS * TB * PACK);
    const uint last = 0x01010101u >> (8 * ((-cg) & 3));
    global const PIXEL *pixels = (global const PIXEL *)x + (size_t)(n * groups + g) * ib * id * ih * iw;
    for (int i = begin; i < end; ++i) {
        const int row = i / tiles;
        // The last tile is shifted back into the row and recomputes part of the previous tile.
        const int x0 = min((i - row * tiles) * TW, ow - TW);
        global const uint *w = filters;
        INTS acc[TW * TB], x_sum[W_ZERO ? TW : 1];
        #pragma unroll
        for (int t = 0; t < TW * TB; ++t) acc[t] = (INTS)0;
        #pragma unroll
        for (int t = 0; t < (W_ZERO ? TW : 1); ++t) x_sum[t] = (INTS)0;
#if !POINTWISE
        const int oz = row / oh, oy = row - oz * oh;
#endif
        for (int b = low; b < high; ++b) {
            const int words = min(X_WORDS, (cg + 3) / 4 - b * X_WORDS);
            const uint whole = b + 1 < ib ? 0x01010101u : last;
#if POINTWISE && !A_SIGNED && !NARROW
            global const uint *columns = (global const uint *)(pixels + (size_t)b * ow + x0);
            MULTIPLY(columns, X_WORDS, w, words, whole)
            w += (X_WORDS - words) * (TB * PACK);
#elif POINTWISE
            PIXEL staged[COLUMNS];
            stage_columns(staged, pixels + (size_t)b * ow, x0, ow, outside);
            MULTIPLY((const uint *)staged, X_WORDS, w, words, whole)
            w += (X_WORDS - words) * (TB * PACK);
#else
            for (int kzy = 0; kzy < KD * KH; ++kzy) {
                const int iz = oz * SD - pd + kzy / KH * DD, iy = oy * SH - ph + kzy % KH * DH;
                const int inside = iz >= 0 && iz < id && iy >= 0 && iy < ih;
                global const PIXEL *line = pixels + (((size_t)b * id + (inside ? iz : 0)) * ih + (inside ? iy : 0)) * iw;
                for (int k0 = 0; k0 < KW; k0 += RUN) {
                    PIXEL staged[COLUMNS];
                    stage_columns(staged, line, x0 * SW - pw + k0 * DW, inside ? iw : 0, outside);
                    #pragma unroll 1
                    for (int k = 0; k < RUN; ++k) {
                        const uint *columns = (const uint *)(staged + k * DW / STEP);
                        MULTIPLY(columns, SW / STEP * X_WORDS, w, words, whole)
                        w += (X_WORDS - words) * (TB * PACK);
                    }
                }
            }
#endif
        }
        const int spatial = od * oh * ow;
        #pragma unroll
        for (int j = 0; j < TB; ++j) {
            if (j < blocks) {
                const int block = first + j;
                INTS more = *(global const ints_at *)(start + block * PACK);
#if X_ZERO == 2
                more -= (zero + SHIFT) * *(global const ints_at *)(sums + block * PACK);
#endif
                #pragma unroll
                for (int t = 0; t < TW; ++t) {
                    if (!NARROW || x0 + t >= 0) {
                        INTS sum = acc[t * TB + j] + more;
#if W_ZERO
                        sum -= x_sum[t] * *(global const ints_at *)(w_zero + block * PACK);
#endif
                        const int s = row * ow + x0 + t;
                        ACCV v = EPILOGUE(sum, n, block, s, groups * ob, spatial);
#if MASK
                        v = MASK_LANES(v, m - block * PACK);
#endif
                        STOREV(y, (((size_t)n * groups * ob + block) * spatial + s) * PACK, v);
                    }
                }
            }
        }
    }
}
