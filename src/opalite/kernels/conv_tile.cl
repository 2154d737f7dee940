// The register tile of channel-packed convolutions: TW output pixels of TB output blocks as accumulators acc[TW * TB].
// The file that includes this one may define before it
//   INPUT       type of a pointer to the tile's first input element (private memory unless said otherwise)
//   ELEMENT     ELEMENT(p, i): element i of an INPUT as ACC
//   NEXT_PIXEL  distance in elements from the input of one output pixel to that of the next
#ifndef TW
#define TW 4
#endif
#ifndef TB
#define TB 1
#endif
#ifndef UNROLL
#define UNROLL 1
#endif
#ifndef INPUT
#define INPUT const ACC *
#define ELEMENT(p, i) (p)[i]
#endif
#ifndef NEXT_PIXEL
#define NEXT_PIXEL PACK
#endif
#include "conv_common.cl"

// Start from the bias of blocks first, first + 1... of which `blocks` exist.
static inline void start_tile(ACCV *acc, BIAS_PARAM int first, int blocks) {
    #pragma unroll
    for (int j = 0; j < TB; ++j) {
#if HAS_BIAS
        const ACCV start = LOADV(bias, (first + min(j, blocks - 1)) * PACK);
#else
        const ACCV start = (ACCV)0;
#endif
        #pragma unroll
        for (int t = 0; t < TW; ++t) acc[t * TB + j] = start;
    }
}

// Add `lanes` input channels of one filter tap; w is [channels][TB][PACK].
static inline void multiply_tile(ACCV *acc, INPUT column, global const REAL *w, size_t lanes) {
    #pragma unroll UNROLL
    for (size_t c = 0; c < lanes; ++c) {
        ACCV wv[TB];
        #pragma unroll
        for (int j = 0; j < TB; ++j) wv[j] = LOADV(w, (c * TB + j) * PACK);
        #pragma unroll
        for (int t = 0; t < TW; ++t) {
            const ACCV v = (ACCV)(ELEMENT(column, t * NEXT_PIXEL + c));
            #pragma unroll
            for (int j = 0; j < TB; ++j) acc[t * TB + j] = MULADD(v, wv[j], acc[t * TB + j]);
        }
    }
}

// Store pixels from..to-1 of the tile, whose first lies at spatial index `at` and whose others follow `step` apart.
// y has `all` blocks of `spatial` pixels and m channels. Constant `from` and `to` compile much faster.
static inline void store_tile(const ACCV *acc, global REAL *restrict y, int n, int first, int blocks, int all, int m,
                              int spatial, int at, int step, int from, int to EPILOGUE_PARAMS) {
    #pragma unroll
    for (int j = 0; j < TB; ++j) {
        if (j < blocks) {
            const int block = first + j;
            #pragma unroll
            for (int t = 0; t < TW; ++t) {
                if (t >= from && t < to) {
                    const int s = at + t * step;
                    ACCV v = EPILOGUE(acc[t * TB + j], n, block, s, all, spatial);
#if MASK
                    v = MASK_LANES(v, m - block * PACK);
#endif
                    STOREV(y, (((size_t)n * all + block) * spatial + s) * PACK, v);
                }
            }
        }
    }
}
