// A constant matrix of a few bits as floats or halves, in the order in which a kernel for products wants its right side.
//   FORM  0  rows [K, N]: a work-item for each word. Grid: N rounded up to the panels' width, words.
//         1  of tiles of matrix units (mma/mma_tile.py), 2 of stages (mma/staged_tile.py), 3 of warpgroups (mma/wgmma_tile.py) by TILE
//            columns: a work-item for each 16 bytes, zeros past K and N. Grid: `pieces` of them.
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
// Numbers k and k + 1, which lie in one word, of column n.
static inline float2 pair_at(global const uint *restrict b, global const SCALE *restrict scale, ZEROS_PARAM int n, int k, int N,
                             int K, int block, float zero) {
    if (n >= N || k >= K) return (float2)0;
    const int words = (K + PER - 1) / PER, blocks = (K + block - 1) / block, panel = n / WIDTH, lane = n % WIDTH;
    const size_t at = ((size_t)panel * blocks + k / block) * WIDTH + lane;
    const uint word = b[PANEL_AT(panel, words) + WORD_AT(k / PER, lane)] >> k % PER * BITS;
    const float by = LOAD_SCALE(1, scale, at), less = ZEROS ? ZERO(1, at) : zero;
    return ((float2)(NUMBER(word, 0), NUMBER(word, 1)) - less) * by;
}

kernel void widen(global const uint *restrict b, global const SCALE *restrict scale, ZEROS_PARAM global ushort8 *restrict to,
                  int N, int K, int block, float zero, int pieces, int steps) {
    const int i = get_global_id(0);
    if (i >= pieces) return;
    int n[4], k[4];
#if FORM == 3
    // [tile][step][TILE / 16][j][e][h][l]: terms 2 e and 2 e + 1 of four quads of column 4 h + 2 j + l of 16.
    const int l = i & 1, h = i >> 1 & 3, e = i >> 3 & 1, j = i >> 4 & 1, sixteen = (i >> 5) % (TILE / 16);
    const int step = (i >> 5) / (TILE / 16) % steps, tile = (i >> 5) / (TILE / 16) / steps;
    #pragma unroll
    for (int t = 0; t < 4; ++t) {
        n[t] = tile * TILE + sixteen * 16 + 4 * h + 2 * j + l;
        k[t] = (step / 2 * 8 + 2 * t + step % 2) * 4 + 2 * e;
    }
#else
    // [tile][step][column][quad]: two columns of 16, 2 l and 2 l + 1 past each fourth, with a quad each.
    const int quad = i & 3, column = i >> 2 & 7, step = (i >> 5) % steps, tile = (i >> 5) / steps;
    const int at = FORM == 2 ? step / 2 * 8 + 2 * quad + step % 2 : step * 4 + quad;
    #pragma unroll
    for (int t = 0; t < 4; ++t) {
        n[t] = tile * 16 + column / 2 * 4 + column % 2 + t / 2 * 2;
        k[t] = at * 4 + t % 2 * 2;
    }
#endif
    float pairs[8];
    #pragma unroll
    for (int t = 0; t < 4; ++t) {
        const float2 pair = pair_at(b, scale, ZEROS_NAME n[t], k[t], N, K, block, zero);
        pairs[2 * t] = pair.x;
        pairs[2 * t + 1] = pair.y;
    }
    ushort8 raw;
    vstore_half8(vload8(0, pairs), 0, (half *)&raw);
    to[i] = raw;
}
#endif
