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
#ifndef NARROW
#define NARROW 0
#endif
#include "conv/grouped_band.cl"
#include "conv/optional_bias.cl"
#include "include/prefetch.cl"

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

// Filters larger than the L1 cache are used in chunks, each by GROUP adjacent tiles in turn, whose partial
// sums are kept in private memory in between. GROUP 1: each tile goes through all filters by itself, on CPUs in chunks of
// SUM_BLOCK terms. Each chunk is summed by itself, so that rounding errors grow with the number of chunks rather than with
// that of terms.
//   TERMS                              in a row of the filter
//   KEPT_TILES                         declares the sums that are kept
//   CHUNK(all)                         rows of the filter in a chunk, of `all`
//   RESUME_TILE(acc, done, ...)        zeros where rows were `done` before, else start_tile
//   SUSPEND_TILE(acc, t, done, more)   adds the kept sums of tile t of the group if rows were `done` before, and keeps the
//                                      sums if `more` rows follow, which it returns
#ifndef GROUP
#define GROUP 1
#endif
#if IN_REGISTERS
#define KEPT_TILES
#define CHUNK(all) (all)
#define RESUME_TILE(acc, done, ...) start_tile(acc, __VA_ARGS__)
#define SUSPEND_TILE(acc, t, done, more) false
#else
#include "include/sum_block.cl"
#define KEPT_TILES ACCV kept[GROUP * TW * TB];
#if GROUP > 1
#define CHUNK(all) chunk
#else
#define CHUNK(all) max(1, SUM_BLOCK / TERMS)
#endif
#define RESUME_TILE(acc, done, ...) \
    do { \
        if (done) \
            clear_tile(acc); \
        else \
            start_tile(acc, __VA_ARGS__); \
    } while (0)
#define SUSPEND_TILE(acc, t, done, more) keep_tile(kept + (t) * (TW * TB), acc, done, more)
#endif

static inline void clear_tile(ACCV *acc) {
    #pragma unroll
    for (int i = 0; i < TW * TB; ++i) acc[i] = (ACCV)0;
}

static inline bool keep_tile(ACCV *kept, ACCV *acc, bool done, bool more) {
    if (done) {
        #pragma unroll
        for (int i = 0; i < TW * TB; ++i) acc[i] += kept[i];
    }
    if (more) {
        #pragma unroll
        for (int i = 0; i < TW * TB; ++i) kept[i] = acc[i];
    }
    return more;
}

// Prefetches `count` lines of 64 bytes from `p` on; returns the address after them.
static inline global const REAL *fetch_lines(global const REAL *p, int count) {
#if GROUP > 1
    #pragma unroll 1
    for (int i = 0; i < count; ++i, p += 64 / sizeof(REAL)) PREFETCH(p);
#endif
    return p;
}

// Add input channel c of one filter tap; w is [channels][TB][PACK].
static inline void multiply_channel(ACCV *acc, INPUT column, global const REAL *w, size_t c) {
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

// Add `lanes` input channels of one filter tap, UNROLL per iteration: past the last channel x and filters are zero. The inner
// loop has constant length, since partial unrolling would leave the accumulators in memory.
static inline void multiply_tile(ACCV *acc, INPUT column, global const REAL *w, size_t lanes) {
    #pragma unroll 1
    for (size_t c = 0; c < lanes; c += UNROLL) {
        #pragma unroll
        for (int u = 0; u < UNROLL; ++u) multiply_channel(acc, column, w, c + u);
    }
}

#if NARROW
// multiply_tile for the first pixel of the tile alone.
static inline void multiply_pixel(ACCV *acc, global const REAL *pixel, global const REAL *w, size_t lanes) {
    #pragma unroll 1
    for (size_t c = 0; c < lanes; ++c) {
        #pragma unroll
        for (int j = 0; j < TB; ++j) acc[j] = MULADD((ACCV)LOAD(pixel, c), LOADV(w, (c * TB + j) * PACK), acc[j]);
    }
}
#endif

// Store pixels from..to-1 of the tile, with the first at spatial index `at` and stride `step`.
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
