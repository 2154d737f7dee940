// Between row-major [N, C, S] and channel blocks [N, ceil(C / PACK), S, PACK], changing the storage type on the way.
// A work-item moves `each` spatial positions of one block.  With TILE = PACK it turns PACK channels by PACK positions in
// registers (CPUs); with TILE = 1 it moves one position at a time, neighbours on neighbours (GPUs).
#ifndef PACK
#define PACK 4
#endif
#ifndef TILE
#define TILE 1
#endif
#include "include/cast_access.cl"
#if TILE > 1
#include "include/tile_transpose.cl"
#endif

// Positions [first, first + each) in steps of a tile; the last tile moves back so that it ends with the row.
#define TILES(s, first, last) for (int s = first; s < last; s = s + TILE >= last ? last : min(s + TILE, last - TILE))

kernel void pack_blocks(global const SRC_T *x, global DST_T *y, int channels, int blocks, int spatial, int each,
                        int outer) {
    const int first = get_global_id(0) * each, last = min(first + each, spatial);
    const int nb = get_global_id(1);
    const int n = nb / blocks;
    const int c0 = (nb - n * blocks) * PACK;
    if (first >= last || nb >= outer) return;
    x += ((size_t)n * channels + c0) * spatial;
    y += (size_t)nb * spatial * PACK;
    const int held = channels - c0;
#if TILE > 1
    if (last - first >= TILE) {
        TILES(s, first, last) {
            TILE_V v[TILE];
#pragma unroll
            for (int k = 0; k < TILE; ++k) {
                v[k] = (TILE_V)((VALUE)0);
                if (k < held) v[k] = LOADP(x, (size_t)k * spatial + s);
            }
            transpose_tile(v);
#pragma unroll
            for (int k = 0; k < TILE; ++k) STOREP(y, (size_t)(s + k) * PACK, v[k]);
        }
        return;
    }
#endif
    for (int s = first; s < last; ++s) {
        VALUE v[PACK];
#pragma unroll
        for (int k = 0; k < PACK; ++k) {
            v[k] = (VALUE)0;
            if (k < held) v[k] = LOAD1(x, (size_t)k * spatial + s);
        }
#pragma unroll
        for (int k = 0; k < PACK; ++k) {
            STORE1(y, (size_t)s * PACK + k, v[k]);
        }
    }
}

kernel void unpack_blocks(global const SRC_T *x, global DST_T *y, int channels, int blocks, int spatial, int each,
                        int outer) {
    const int first = get_global_id(0) * each, last = min(first + each, spatial);
    const int nb = get_global_id(1);
    const int n = nb / blocks;
    const int c0 = (nb - n * blocks) * PACK;
    if (first >= last || nb >= outer) return;
    x += (size_t)nb * spatial * PACK;
    y += ((size_t)n * channels + c0) * spatial;
    const int held = channels - c0;
#if TILE > 1
    if (last - first >= TILE) {
        TILES(s, first, last) {
            TILE_V v[TILE];
#pragma unroll
            for (int k = 0; k < TILE; ++k) v[k] = LOADP(x, (size_t)(s + k) * PACK);
            transpose_tile(v);
#pragma unroll
            for (int k = 0; k < TILE; ++k) {
                if (k < held) {
                    STOREP(y, (size_t)k * spatial + s, v[k]);
                }
            }
        }
        return;
    }
#endif
    for (int s = first; s < last; ++s) {
#pragma unroll
        for (int k = 0; k < PACK; ++k) {
            if (k < held) {
                STORE1(y, (size_t)k * spatial + s, LOAD1(x, (size_t)s * PACK + k));
            }
        }
    }
}
