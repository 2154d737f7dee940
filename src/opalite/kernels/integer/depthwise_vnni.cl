// Depthwise convolution of 8-bit integers on channel-packed tensors, sums exact in int32, on CPUs: four adjacent taps of a
// channel to a lane's instruction (include/dot4_bytes.cl).
//   y[n, c, o] = bias[c] + sum over k of (x[n, c, o*S - pad + k] - x_zero) * w[c, k]
// Four pixels of PACK channels are transposed, so that each lane holds its channel's four bytes. They serve SHARE adjacent
// outputs, whose filters are shifted against each other in their words; NG such fours hold all taps of a row for these. A
// work-item computes tiles of TG times SHARE adjacent columns of one block.
// Needs KD KH KW (filter), SD SH SW (stride), DD DH (dilation; the columns have none), X_ZERO, A_SIGNED, MASK as
// integer/conv_vnni.cl has them.
// Weights, words of signed bytes: [blocks, KD * KH, NG, SHARE, PACK]; start and sums as there: int[blocks * PACK].
// A work-item does `span` adjacent tiles in turn. Grid: ceil(column tiles * oh * od / span), blocks, batch.
#include "include/dot4_bytes.cl"
#include "include/aligned_blocks.cl"
#ifndef TG
#define TG 4
#define NG 1
#define SHARE 2
#define A_SIGNED 0
#define X_ZERO 0
#endif
#include "integer/zero_point_params.cl"
#if PACK == 16
#define X_WORDS 4
#else
#define X_WORDS 2
#endif
#define TW (TG * SHARE)

#if DOTS == 2
// In assembly too, since compilers emit a dozen instructions for these two.
#define BYTES_OF_LANES 0x0c080400u, 0x0d090501u, 0x0e0a0602u, 0x0f0b0703u
#if PACK == 16
#define LANES_OF_PIXELS ((uint16)(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15))
#define BYTES_OF_PIXELS ((uint16)(BYTES_OF_LANES, BYTES_OF_LANES, BYTES_OF_LANES, BYTES_OF_LANES))
#define PIXELS_OF_LANES ((uint16)(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3))
#else
#define LANES_OF_PIXELS ((uint8)(0, 2, 4, 6, 1, 3, 5, 7))
#define BYTES_OF_PIXELS ((uint8)(BYTES_OF_LANES, BYTES_OF_LANES))
#define PIXELS_OF_LANES ((uint8)(0, 1, 2, 3, 0, 1, 2, 3))
#endif
static inline WORDS permuted(WORDS v, WORDS order) {
    WORDS out;
    __asm__("vpermd %2, %1, %0" : "=v"(out) : "v"(order), "v"(v));
    return out ^ (WORDS)FLIP;
}
static inline WORDS turned(WORDS v) {
    __asm__("vpshufb %1, %0, %0" : "+v"(v) : "v"(BYTES_OF_PIXELS));
    return v;
}
#endif

// Four adjacent pixels of a row of iw, at least four, from column ix on, as words of one channel each: those outside the
// row hold `outside`.
static inline WORDS four_at(global const uint *row, int ix, int iw, uint outside) {
#if DOTS == 2
    if (ix >= 0 && ix + 4 <= iw) return turned(permuted(*(global const words_at *)(row + ix * X_WORDS), LANES_OF_PIXELS));
    const int from = clamp(ix, 0, iw - 4);
    const WORDS order = LANES_OF_PIXELS + (WORDS)(uint)((ix - from) * X_WORDS);
    const WORDS four = permuted(*(global const words_at *)(row + from * X_WORDS), order);
    return turned((WORDS)(uint)ix + PIXELS_OF_LANES < (WORDS)(uint)iw ? four : (WORDS)outside);
#else
    WORDS out;
    for (int c = 0; c < PACK; ++c) {
        uint word = outside;
        for (int p = 0; p < 4; ++p) {
            if (ix + p < 0 || ix + p >= iw) continue;
            const uint byte = ((global const uchar *)row)[(ix + p) * PACK + c] ^ (FLIP & 0xffu);
            word = (word & ~(0xffu << (8 * p))) | byte << (8 * p);
        }
        ((uint *)&out)[c] = word;
    }
    return out;
#endif
}

__attribute__((reqd_work_group_size(1, 1, 1)))
kernel void depthwise_fours(global const uint *restrict x, global const uint *restrict weights,
                            global const int *restrict start, X_ZERO_PARAM global REAL *restrict y, int span, int batch,
                            int blocks, int channels, int id, int ih, int iw, int od, int oh, int ow, int pd, int ph, int pw
                            EPILOGUE_PARAMS) {
    const int block = get_global_id(1), n = get_global_id(2);
    if (block >= blocks || n >= batch) return;
    const int tiles = (ow + TW - 1) / TW, begin = get_global_id(0) * span, end = min(begin + span, tiles * oh * od);
    OWN_ZERO
    const uint outside = (uint)((zero + SHIFT) & 0xff) * 0x01010101u;
    const int spatial = od * oh * ow;
    x += (size_t)(n * blocks + block) * id * ih * iw * X_WORDS;
    weights += (size_t)block * (KD * KH * NG * SHARE * PACK);
    INTS first = *(global const ints_at *)(start + block * PACK);
#if X_ZERO == 2
    first -= (zero + SHIFT) * *(global const ints_at *)(sums + block * PACK);
#endif
    for (int i = begin; i < end; ++i) {
        const int row = i / tiles, x0 = (i - row * tiles) * TW, oz = row / oh, oy = row - oz * oh, left = x0 * SW - pw;
        INTS acc[TW];
        #pragma unroll
        for (int t = 0; t < TW; ++t) acc[t] = first;
        #pragma unroll 1
        for (int kzy = 0; kzy < KD * KH; ++kzy) {
            const int iz = oz * SD - pd + kzy / KH * DD, iy = oy * SH - ph + kzy % KH * DH;
            WORDS f[NG * SHARE];
            #pragma unroll
            for (int k = 0; k < NG * SHARE; ++k)
                f[k] = *(global const words_at *)(weights + (kzy * (NG * SHARE) + k) * PACK);
            const bool inside = iz >= 0 && iz < id && iy >= 0 && iy < ih;
            global const uint *line = x + (inside ? ((size_t)iz * ih + iy) * iw * X_WORDS : 0);
            #pragma unroll
            for (int u = 0; u < TG; ++u) {
                #pragma unroll
                for (int g = 0; g < NG; ++g) {
                    WORDS four = (WORDS)outside;
                    if (inside) four = four_at(line, left + u * (SHARE * SW) + 4 * g, iw, outside);
                    #pragma unroll
                    for (int k = 0; k < SHARE; ++k)
                        acc[u * SHARE + k] = dot_fours(acc[u * SHARE + k], four, f[g * SHARE + k]);
                }
            }
        }
        #pragma unroll
        for (int t = 0; t < TW; ++t) {
            if (x0 + t < ow) {
                const int s = row * ow + x0 + t;
                ACCV v = EPILOGUE(acc[t], n, block, s, blocks, spatial);
#if MASK
                v = MASK_LANES(v, channels - block * PACK);
#endif
                STOREV(y, ((size_t)(n * blocks + block) * spatial + s) * PACK, v);
            }
        }
    }
}
