// A constant matrix of a few bits as floats or halves, in the order in which a kernel for products wants its right side.
//   FORM  0  rows [K, N]: a work-item for each word. Grid: N rounded up to the panels' width, words.
//         1  of tiles of matrix units (mma/mma_tile.py), 2 of stages (mma/staged_tile.py), 3 of warpgroups (mma/wgmma_tile.py) by TILE
//            columns: a work-item for the terms of two steps, whose words lie together, of a column, or of two that share
//            pieces of 16 bytes. Zeros past K and N. Grid: `count` of them.
//   WIDTH     columns of a panel
#include "quantized/unpack_low_bit.cl"
#include "quantized/packed_word_offsets.cl"
#ifndef FORM
#define FORM 0
#define WIDTH 32
#define TILE 64
#endif
#define MAGIC 8388608.0f
#if ZEROS == 0
#define ZEROS_NAME
#else
#define ZEROS_NAME zeros,
#endif
#if TABLE
#define NUMBER(w, j) look_up_1((w) >> ((j) * BITS))
#else
#define NUMBER(w, j) (as_float(((w) >> ((j) * BITS) & (LEVELS - 1u)) | 0x4b000000u) - MAGIC)
#endif

#if FORM == 0
kernel void widen(global const uint *restrict b, global const SCALE *restrict scale, ZEROS_PARAM global REAL *restrict to,
                  int N, int K, int block, float zero) {
    const int n = get_global_id(0), w = get_global_id(1), words = (K + PER - 1) / PER, blocks = (K + block - 1) / block;
    if (n >= N || w >= words) return;
    const int panel = n / WIDTH, lane = n % WIDTH;
    const size_t at = ((size_t)panel * blocks + w * PER / block) * WIDTH + lane;
    const uint word = b[PANEL_AT(panel, words) + WORD_AT(w, lane)];
    const float by = LOAD_SCALE(1, scale, at), less = ZEROS ? ZERO(1, at) : zero;
    #pragma unroll
    for (int j = 0; j < PER; ++j)
        if (w * PER + j < K) STORE(to, (size_t)(w * PER + j) * N + n, (ACC)((NUMBER(word, j) - less) * by));
}
#else
#define SPAN 32  // terms of a chunk, which two steps of 16 take
// The numbers of column n from term k on, as halves; zeros past K and N.
static inline void unpack_chunk(global const uint *restrict b, global const SCALE *restrict scale, ZEROS_PARAM int n, int k,
                                int N, int K, int block, float zero, ushort numbers[SPAN]) {
    const int words = (K + PER - 1) / PER, blocks = (K + block - 1) / block, column = min(n, N - 1);
    const int panel = column / WIDTH, lane = column % WIDTH;
    b += PANEL_AT(panel, words);
    uint held[SPAN / PER];
    #pragma unroll
    for (int w = 0; w < SPAN / PER; ++w) held[w] = b[WORD_AT(min(k / PER + w, words - 1), lane)];
    #pragma unroll
    for (int w = 0; w < SPAN / PER; ++w) {
        const int first = k + w * PER;
        const size_t at = ((size_t)panel * blocks + min(first, K - 1) / block) * WIDTH + lane;
        const float by = LOAD_SCALE(1, scale, at), less = ZEROS ? ZERO(1, at) : zero;
        #pragma unroll
        for (int j = 0; j < PER; ++j) {
            const float v = n < N && first + j < K ? (NUMBER(held[w], j) - less) * by : 0.0f;
            vstore_half(v, w * PER + j, (half *)numbers);
        }
    }
}

kernel void widen(global const uint *restrict b, global const SCALE *restrict scale, ZEROS_PARAM global ushort8 *restrict to,
                  int N, int K, int block, float zero, int count, int steps) {
    const int i = get_global_id(0), chunks = (steps + 1) / 2;
    if (i >= count) return;
#if FORM == 3
    // [tile][step][TILE / 16][j][e][h][l]: terms 2 e and 2 e + 1 of four quads of column 4 h + 2 j + l of 16. Adjacent
    // work-items take adjacent h and l.
    const int seat = i % TILE, chunk = i / TILE % chunks, tile = i / TILE / chunks;
    const int l = seat & 1, h = seat >> 1 & 3, j = seat >> 3 & 1, sixteen = seat / 16;
    ushort v[SPAN];
    unpack_chunk(b, scale, ZEROS_NAME tile * TILE + sixteen * 16 + 4 * h + 2 * j + l, chunk * SPAN, N, K, block, zero, v);
    #pragma unroll
    for (int s = 0; s < 2; ++s) {
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
            ushort8 raw;
            #pragma unroll
            for (int t = 0; t < 8; ++t) ((ushort *)&raw)[t] = v[(t / 2 * 2 + s) * 4 + 2 * e + t % 2];
            to[(((size_t)tile * steps + chunk * 2 + s) * (TILE / 16) + sixteen) * 32 + j * 16 + e * 8 + h * 2 + l] = raw;
        }
    }
#else
    // [tile][step][column][quad]: two columns of 16, 2 l and 2 l + 1 past each fourth, with a quad each. Of two steps,
    // FORM 2 takes quads in turn.
    const int column = i & 7, chunk = (i >> 3) % chunks, tile = (i >> 3) / chunks;
    const int n = tile * 16 + column / 2 * 4 + column % 2;
    ushort v[2][SPAN];
    unpack_chunk(b, scale, ZEROS_NAME n, chunk * SPAN, N, K, block, zero, v[0]);
    unpack_chunk(b, scale, ZEROS_NAME n + 2, chunk * SPAN, N, K, block, zero, v[1]);
    #pragma unroll
    for (int s = 0; s < 2; ++s) {
        if (chunk * 2 + s >= steps) break;
        #pragma unroll
        for (int quad = 0; quad < 4; ++quad) {
            const int from = FORM == 2 ? 2 * quad + s : s * 4 + quad;
            ushort8 raw;
            #pragma unroll
            for (int t = 0; t < 8; ++t) ((ushort *)&raw)[t] = v[t / 4][from * 4 + t % 4];
            to[((size_t)tile * steps + chunk * 2 + s) * 32 + column * 4 + quad] = raw;
        }
    }
#endif
}
#endif
