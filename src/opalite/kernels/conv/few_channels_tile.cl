// The register tile of convolutions to few output channels: TW output pixels of TM channels as accumulators
// acc[TW * TM], whose lanes sum over input channels apart and are added up at the end, so that no lane is wasted on
// missing outputs. Tiles are collected in groups of GROUP adjacent pixels, a multiple of TW that the including
// file defines, at least PACK, so that epilogue and store work on vectors of pixels.
// IN_SUM_BLOCKS (1: sums are long): sums of SUM_BLOCK terms of a lane are added up in registers of their own.
#include "include/reduce_lanes.cl"
#include "include/sum_block.cl"
#ifndef TW
#define TW 4
#endif
#ifndef TM
#define TM 1
#endif
#include "conv/optional_bias.cl"
// Collected sums are in private memory, as float even if ACC is half: some compilers fail on private arrays of halves.
#if defined(ACC_HALF)
#define SUM float
#else
#define SUM ACC
#endif

static inline void clear_lanes(ACCV *acc) {
    #pragma unroll
    for (int t = 0; t < TW * TM; ++t) acc[t] = (ACCV)0;
}

// Add the sums of a block of terms to those before it, and begin the next block.
static inline void move_lanes(ACCV *kept, ACCV *acc) {
    #pragma unroll
    for (int t = 0; t < TW * TM; ++t) kept[t] += acc[t];
    clear_lanes(acc);
}

// Add one block of input channels of one filter tap: pixels v[TW], filters w [TM][PACK].
static inline void multiply_lanes(ACCV *acc, const ACCV *v, global const REAL *w) {
    #pragma unroll
    for (int j = 0; j < TM; ++j) {
        const ACCV wv = LOADV(w, j * PACK);
        #pragma unroll
        for (int t = 0; t < TW; ++t) acc[t * TM + j] = MULADD(v[t], wv, acc[t * TM + j]);
    }
}

// Add up the lanes of the tile's pixels, which are at, at + step... of the group whose sums [TM][GROUP] are collected.
static inline void sum_lanes(SUM *sums, const ACCV *acc, int at, int step) {
    #pragma unroll
    for (int j = 0; j < TM; ++j) {
        #pragma unroll
        for (int t = 0; t < TW; ++t) sums[j * GROUP + at + t * step] = SUM_LANES(acc[t * TM + j]);
    }
}

// Store the first `count` pixels of a group, from spatial index `at` on, in channels m0, m0 + 1... of which y has `mt`,
// each of `spatial` pixels.
static inline void store_group(const SUM *sums, BIAS_PARAM global REAL *restrict y, int n, int m0, int mt, int spatial,
                               int at, int count EPILOGUE_PARAMS) {
    for (int j = 0; j < TM && m0 + j < mt; ++j) {
        const int m = m0 + j;
        const size_t line = ((size_t)n * mt + m) * spatial;
#if HAS_BIAS
        const ACC start = LOAD(bias, m);
#else
        const ACC start = 0;
#endif
        int s = 0;
        for (; s + PACK <= count; s += PACK) {
            const ACCV v = EPILOGUE(CONVERT_N(PACK, ACC)(VLOAD(PACK, j * GROUP + s, sums)) + start, n, m, at + s, mt, spatial);
            STOREV(y, line + at + s, v);
        }
        for (; s < count; ++s) {
            const ACC v = EPILOGUE1((ACC)sums[j * GROUP + s] + start, n, m, at + s, mt, spatial);
            STORE(y, line + at + s, v);
        }
    }
}
