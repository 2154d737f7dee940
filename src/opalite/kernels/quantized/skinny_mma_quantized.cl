// y[m, n] = sum_k a[m, k] (b[k, n] - zero[n, k / block]) scale[n, k / block] for few rows of halves, on matrix units: bound by
// reading b. Panels are 32 wide and 4 deep (packed_word_offsets.cl): half a warp reads 16 bytes, a quad, of each of 16 columns, the other half
// the next quad of those, UNROLL quads of a work-item in flight at any time.
// A number becomes a half in place: bits below 1024 of half a word are a denormal half, a multiple of 2^-24, without an
// exponent. One operation per pair subtracts the zero point and scales to 2^-9 times the number, exactly.
// Pairs go to the matrix units unchanged. The units expect in each lane terms of four lanes of one column, while a lane has its own quads:
// so a row of a is 8 rows of the left side, row r with zeros but for the terms of the quads of lanes 4 g + r % 4 in half
// r / 4 of a warp, and half of the sums is wanted. Local memory holds the rows as operands of the units: pairs of two rows
// side by side, or, of a single row, those of two multiplications, of which one gives the first 8 rows of its result that
// are wanted, the other the last.
// Sums of a block begin from 0, and are scaled and added up as floats.
// A work-group of 32 * PARTS work-items owns `sixteens` times 16 columns and MR rows, its warps split the quads of a
// column, and sums of 16 * SPLIT columns are reduced in local memory while the next quads are loaded. MR is 1 or even.
// Grid: ceil(N / 16 / sixteens) * group size, ceil(M / MR).
//   SPAN      words of a block; 0: one block a column
//   SPLIT     sixteens of columns that the UNROLL quads of a work-item belong to, each with all of its quads if several
//   ROUNDS    times UNROLL quads of each lane whose part of the rows is in local memory at once
//   ALIGNED   K is a multiple of 4
//   NORMALIZED   not 0: rows are normalised first (matmul/normalize_rows_prologue.cl), and ROUNDS covers all of them; K is a multiple of 8,
//             and BITS is not 2, whose pairs are of 16 numbers
#include "quantized/unpack_low_bit.cl"
#undef ZERO // which unpack_low_bit.cl has for zero points, and mma_instructions.cl for sums to begin with
#ifndef MR
#define MR 1
#define PARTS 8
#define UNROLL 8
#define SPLIT 1
#define ROUNDS 1
#define SPAN 4
#define ALIGNED 0
#endif
#define WIDTH 32
#define GROUP (32 * PARTS)
#define INLINE_PTX 1
#include "include/async_constant_loads.cl"
#include "mma/mma_instructions.cl"
#define QUAD (4 * PER)                // numbers of a quad
#define VECTORS (QUAD / 8)            // of 8 numbers, 16 bytes of a row
#define PAIRS (PER / 2)               // of a word: number i and i + PAIRS
#define PLACES (8 / BITS)             // of numbers in a byte
#define SCALES (SPAN % 4 == 0 ? 1 : SPAN % 2 == 0 ? 2 : 4) // of a quad
#define STEPS (UNROLL / SPLIT)        // quads of a lane, of 16 columns
#define SHARES (2 * PARTS)            // lanes that split a column
#define ROUND (SHARES * STEPS)        // quads of a column that are multiplied at once
#define TILES ((MR + 1) / 2)          // of sums, by two rows
#define OPERANDS (MR > 1 ? 2 * VECTORS : VECTORS) // of the units, for a quad of a tile's rows
#define TILE (ROUNDS * ROUND * OPERANDS)
#define CHAINS (TILES == 1 ? 4 : TILES == 2 ? 2 : 1) // of multiplications that do not wait for each other
#define BUFFERS (MR > 4 ? 1 : 2)
#define SUMS (SPLIT * MR * PARTS * 16)
#define DOUBLED 0x00010001u           // times a half: the pair of it
#define UNIT (LEVELS - 1u)
#define UP(p) ((0x7800u - (BITS * (p) << 10)) * DOUBLED) // 2^15 / 2^(BITS p), for numbers that stand so high
#define DOWN (0xf800u * DOUBLED)      // -2^15
#define BACK 512.0f
#define ROW_VECTORS (ROUNDS * ROUND * VECTORS) // of a row in local memory
#define ROW_TERMS (8 * ROW_VECTORS)
#include "matmul/normalize_rows_prologue.cl"
#if HALF_SCALES
typedef ushort ScaleBits;
#else
typedef float ScaleBits;
#endif

// A quad of the lane's column, with its zero points, and scales of the sums that the units give the lane: of two columns,
// other than its own. They stay in their stored form, since converting them would wait for the load.
typedef struct {
    uint4 words;
    ScaleBits scales[SCALES][2];
#if ZEROS
    uchar zeros[SCALES];
#endif
} Held;

// Number of the block to which part s of quad q + i * SHARES belongs, q being one of the first.
static inline int block_of(int q, int i, int s, int blocks) {
#if SPAN == 0
    return 0;
#elif SPAN % 4 == 0 && SHARES % (SPAN / 4) == 0
    return (int)((uint)q / (SPAN / 4)) + i * (SHARES / (SPAN / 4));
#else
    return min((int)((uint)(4 * (q + i * SHARES) + s * (4 / SCALES)) / SPAN), blocks - 1);
#endif
}

// Quad i of the lane from quad `first` of a column on, in 16 columns; nothing where they are not the group's or have no such
// quad.
static inline Held fetch(global const uint4 *restrict b, global const SCALE *restrict scale, ZEROS_PARAM
                         int sixteen, int last, int first, int i, int quads, int blocks) {
    const int lane = LANE, own = lane / 4, pair = lane % 4, from = first + WARP * 2;
    const int q = from + lane / 16, scaled = from + own / 4; // quads that it reads, and the sums it receives
    const int panel = sixteen / 2, column = sixteen % 2 * 16;
    const bool is_there = sixteen < last && q + i * SHARES < quads, is_scaled = sixteen < last && scaled + i * SHARES < quads;
    Held held;
    held.words = is_there ? b[(panel * quads + q) * WIDTH + column + lane % 16 + i * (SHARES * WIDTH)] : (uint4)0;
    #pragma unroll
    for (int s = 0; s < SCALES; ++s) {
        global const ScaleBits *at = (global const ScaleBits *)scale + column + pair % 2 * 8 + own % 4;
        at += (panel * blocks + block_of(scaled, i, s, blocks)) * WIDTH;
        held.scales[s][0] = is_scaled ? at[0] : (ScaleBits)0;
        held.scales[s][1] = is_scaled ? at[4] : (ScaleBits)0;
#if ZEROS
        const int lies = (panel * blocks + block_of(q, i, s, blocks)) * WIDTH + column + lane % 16;
        held.zeros[s] = is_there ? zeros[lies] : (uchar)0;
#endif
    }
    return held;
}
#if ZEROS
#define FETCH(sixteen, first, i) fetch(b, scale, zeros, sixteen, last, first, i, quads, blocks)
#else
#define FETCH(sixteen, first, i) fetch(b, scale, sixteen, last, first, i, quads, blocks)
#endif

static inline float2 floats_of(const ScaleBits *scales) {
#if HALF_SCALES
    return pair_floats(scales[0] | (uint)scales[1] << 16);
#else
    return (float2)(scales[0], scales[1]);
#endif
}

// Numbers k to k + 3 of a row of K, in pairs; 0 past its end.
static inline uint2 four_of_row(global const ushort *restrict row, int k, int K) {
#if ALIGNED
    return k < K ? *(global const uint2 *)(row + k) : (uint2)0;
#else
    uint four[4];
    #pragma unroll
    for (int i = 0; i < 4; ++i) four[i] = k + i < K ? row[k + i] : 0;
    return (uint2)(four[0] | four[1] << 16, four[2] | four[3] << 16);
#endif
}

// Four numbers and their counterparts in the upper half of a word, in the order of pairs.
static inline uint4 in_order(uint2 low, uint2 high) {
    const uint4 ends = BITS == 8 ? (uint4)(low, high) : (uint4)(low.x, high.x, low.y, high.y);
    return (uint4)((ends.x & 0xffffu) | ends.y << 16, ends.x >> 16 | (ends.y & 0xffff0000u),
                   (ends.z & 0xffffu) | ends.w << 16, ends.z >> 16 | (ends.w & 0xffff0000u));
}

// Vector v of a row from number `first` on.
static inline uint4 vector_of_row(global const ushort *restrict row, int first, int v, int K) {
    const int k = first + (BITS == 2 ? v / 2 * 16 + v % 2 * 4 : v * 8);
    return in_order(four_of_row(row, k, K), four_of_row(row, k + (BITS == 2 ? 8 : 4), K));
}

// Vector e of the tiles' rows becomes operands: x, and of a tile's second row z.
static inline void put_vector(local uint4 *rows, int e, uint4 x, uint4 z) {
#if MR == 1
    rows[e] = x;
#else
    rows[2 * e] = (uint4)(x.x, z.x, x.y, z.y);
    rows[2 * e + 1] = (uint4)(x.z, z.z, x.w, z.w);
#endif
}

__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void quantized_few(global const REAL *restrict a, ROW_SCALE_PARAM ROW_BIAS_PARAM global const uint4 *restrict b,
                          global const SCALE *restrict scale, ZEROS_PARAM global REAL *restrict y, int M, int N, int K,
                          int blocks, int sixteens, uint zero EPSILON_PARAM EPILOGUE_PARAMS) {
    local uint4 rows[TILES * TILE + OPERANDS]; // and zeros
    local float sums_[BUFFERS * SUMS];
    UNITS;
    const int item = get_local_id(0), lane = LANE, part = WARP, own = lane / 4, pair = lane % 4;
    const int first = get_group_id(0) * sixteens, last = min(first + sixteens, (N + 15) / 16), m0 = get_group_id(1) * MR;
    const int quads = (K + QUAD - 1) / QUAD, rounds = SPLIT > 1 ? 1 : (quads + ROUND - 1) / ROUND;
    Held ring[UNROLL];
    #pragma unroll
    for (int u = 0; u < UNROLL; ++u) ring[u] = FETCH(first + u / STEPS, 0, u % STEPS);
#if NORMALIZED
    RowPart scales, biases, parts[MR];
#if HAS_SCALE
    read_part(&scales, row_scale, K);
#endif
#if HAS_BIAS
    read_part(&biases, row_bias, K);
#endif
#endif
    AWAIT;
    local const uint4 *const nothing = rows + TILES * TILE;
    if (item < OPERANDS) rows[TILES * TILE + item] = (uint4)0;
#if NORMALIZED
    #pragma unroll
    for (int i = 0; i < MR; ++i) read_part(parts + i, a + (size_t)min(m0 + i, M - 1) * K, K);
    normalise_rows(parts, &scales, &biases, sums_, K, epsilon, units_);
    #pragma unroll
    for (int e = 0; e < HELD * TILES; ++e) {
        const int u = e / TILES, t = e % TILES, v = VECTOR_AT(u) / 8;
        const uint4 x = parts[2 * t].vectors[u], z = parts[min(2 * t + 1, MR - 1)].vectors[u];
        if (v < ROW_VECTORS) put_vector(rows, t * ROW_VECTORS + v, in_order(x.lo, x.hi), in_order(z.lo, z.hi));
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    float total[TILES][4];
    #pragma unroll
    for (int i = 0; i < TILES * 4; ++i) total[i / 4][i % 4] = ZERO;
    const bool mine = own % 4 == pair;
    int round = 0;
    #pragma unroll 1
    for (int sixteen = first; sixteen < last;) {
#if !NORMALIZED
        if (round % ROUNDS == 0 && (sixteen == first || rounds > ROUNDS)) {
            if (round > 0 || sixteen > first) barrier(CLK_LOCAL_MEM_FENCE);
            #pragma unroll 4
            for (int e = item; e < TILES * ROW_VECTORS; e += GROUP) {
                const int v = e % ROW_VECTORS, k = round * (ROUND * QUAD), r = m0 + e / ROW_VECTORS * 2;
                global const ushort *const row = (global const ushort *)a + (size_t)r * K;
                const uint4 x = r < M ? vector_of_row(row, k, v, K) : (uint4)0;
                const uint4 z = MR > 1 && r + 1 < M ? vector_of_row(row + K, k, v, K) : (uint4)0;
                put_vector(rows, e, x, z);
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
#endif
        const bool ends = round + 1 == rounds;
        const int next = ends ? sixteen + SPLIT : sixteen, ahead = ends ? 0 : (round + 1) * ROUND;
        local float *const sums = sums_ + sixteen / SPLIT % BUFFERS * SUMS;
        UNROLLED
        for (int u = 0; u < UNROLL; ++u) {
            const Held held = ring[u];
            ring[u] = FETCH(next + u / STEPS, ahead, u % STEPS);
            const uint words[4] = {held.words.x, held.words.y, held.words.z, held.words.w};
            const int q = (round % ROUNDS * STEPS + u % STEPS) * (2 * PARTS) + part * 2 + own / 4;
            local const uint4 *const terms = rows + q * OPERANDS;
            UNROLLED
            for (int s = 0; s < SCALES; ++s) {
#if ZEROS
                const uint less = FUSED(held.zeros[s] * DOUBLED, DOWN, 0u);
#else
                const uint less = zero;
#endif
                float sum[TILES * CHAINS][4];
                #pragma unroll
                for (int i = 0; i < TILES * CHAINS * 4; ++i) sum[i / 4][i % 4] = ZERO;
                UNROLLED
                for (int v = s * (VECTORS / SCALES); v < (s + 1) * (VECTORS / SCALES); ++v) {
                    uint pairs[4];
                    #pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        const int e = v * 4 + i, p = e % PLACES;
                        const uint moved = words[e / PAIRS] >> (e % PAIRS / PLACES * 8);
                        pairs[i] = FUSED(moved & (UNIT * DOUBLED) << (BITS * p), UP(p), less);
                    }
                    UNROLLED
                    for (int t = 0; t < TILES; ++t) {
                        local const uint4 *const at = mine ? terms + t * TILE : nothing;
                        float *const one = sum[t * CHAINS + 2 * v % CHAINS], *const two = sum[t * CHAINS + (2 * v + 1) % CHAINS];
#if MR == 1
                        const uint4 x = at[v];
                        MULTIPLY(one, x.x, x.y, x.z, x.w, pairs[0], pairs[2]);
                        MULTIPLY(two, x.x, x.y, x.z, x.w, pairs[1], pairs[3]);
#else
                        const uint4 x = at[2 * v], z = at[2 * v + 1];
                        MULTIPLY(one, x.x, x.y, x.z, x.w, pairs[0], pairs[1]);
                        MULTIPLY(two, z.x, z.y, z.z, z.w, pairs[2], pairs[3]);
#endif
                    }
                }
                const float2 by = floats_of(held.scales[s]);
                #pragma unroll
                for (int e = 0; e < TILES * 4; ++e) {
                    if (e / 2 >= MR) continue;
                    float added = sum[e / 4 * CHAINS][e % 4];
                    #pragma unroll
                    for (int c = 1; c < CHAINS; ++c) added += sum[e / 4 * CHAINS + c][MR == 1 && c % 2 ? e + 2 : e % 4];
                    total[e / 4][e % 4] += (e % 2 ? by.y : by.x) * added;
                }
            }
            if ((u + 1) % STEPS || !ends) continue;
            if (BUFFERS == 1) barrier(CLK_LOCAL_MEM_FENCE);
            UNROLLED
            for (int e = 0; e < TILES * 4; ++e) {
                const int i = e / 2, at = u / STEPS * MR + i, column = pair % 2 * 8 + e % 2 * 4 + own % 4;
                if (i >= MR) continue;
                const float other = SWAPPED(total[e / 4][e % 4], 18); // of the other half of the warp's quads
                if (own < 4 && pair < 2) sums[(at * PARTS + part) * 16 + column] = (total[e / 4][e % 4] + other) * BACK;
                total[e / 4][e % 4] = ZERO;
            }
        }
        round = ends ? 0 : round + 1;
        if (!ends) continue;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int e = item; e < SPLIT * MR * 16; e += GROUP) {
            const int at = e / 16 / MR, r = m0 + e / 16 % MR, n = (sixteen + at) * 16 + e % 16;
            if (sixteen + at >= last || r >= M || n >= N) continue;
            float sum = 0;
            #pragma unroll
            for (int p = 0; p < PARTS; ++p) sum += sums[(e / 16 * PARTS + p) * 16 + e % 16];
            const ACC out = EPILOGUE1(sum, r, n, M, N);
            STORE(y, (size_t)r * N + n, out);
        }
        sixteen += SPLIT;
    }
}
