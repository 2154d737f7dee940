// y[m, n] = sum_k a[m, k] (b[k, n] - zero[n, k / block]) scale[n, k / block] for few rows, on GPUs: bound by reading b.
// A work-group of COLS x PARTS work-items owns COLS adjacent columns and MR rows. Panels are 32 wide and 4 deep (packed_word_offsets.cl), so
// that a work-item reads 16 bytes, a quad, of a column, and its neighbours those of the next columns; PARTS of them share
// out a column's quads, UNROLL in flight at once. The group also copies the rows of a to local memory as floats,
// which columns share. Partial sums are reduced there, too. Grid: groups of columns * COLS * PARTS, ceil(M / MR).
// A number becomes a float in place: or-ed into 2^23 = MAGIC, whose last bits represent an integer, number j of half a
// word adds u 2^(BITS j). MAGIC and the zero point come off exactly, and a is divided by 2^(BITS j) beforehand.
//   SPAN      words of a block; 0: one block a column
//   FRACTION  zero points are not byte-sized integers and need a subtraction of their own
//   ALIGNED   K is a multiple of 4
#include "quantized/unpack_low_bit.cl"
#include "include/texel_buffer.cl"
#if ALIGNED
#include "include/aligned_blocks.cl"
#endif
#ifndef MR
#define MR 1
#define COLS 8
#define PARTS 32
#define UNROLL 2
#define SPAN 4
#define FRACTION 0
#define ALIGNED 0
#endif
#define WIDTH 32
#define GROUP (COLS * PARTS)
#define TURN (PARTS * UNROLL)          // quads that a group reads at once
#define QUAD (4 * PER)                 // numbers of a quad
#define VECTORS (QUAD / 4)             // float4 of a row that multiply a quad
#define PLACE (VECTORS + 1)            // one more, so that lanes that read others' have no bank conflicts
#define SCALES (SPAN % 4 ? 4 : 1)      // scales of a quad
#define STAGED (MR * TURN * PLACE)
#define SUMMED ((MR * GROUP + 3) / 4)
#define MAGIC 8388608.0f
#if TABLE
#define SHARES(v) ((float4)1)
#define VALUE(w, j) values[(w) >> ((j) * BITS) & 15u]
#else
#define UNIT (LEVELS - 1u)
#if BITS == 4
#define POWERS ((float4)(1, 16, 256, 4096))
#define SHARES(v) ((float4)(1, 1 / 16.0f, 1 / 256.0f, 1 / 4096.0f))
#elif BITS == 8
#define POWERS ((float4)(1, 256, 1, 256))
#define SHARES(v) ((float4)(1, 1 / 256.0f, 1, 1 / 256.0f))
#else
#define POWERS ((float4)(1, 4, 16, 64))
#define SHARES(v) ((float4)(1, 1 / 4.0f, 1 / 16.0f, 1 / 64.0f) * ((v) % 2 ? 1 / 256.0f : 1.0f))
#endif
#endif
// Number j of word w as MAGIC + u 2^(BITS j'), j' being its number in the half of the word.
#define PART_OF(w, j) (((w) >> ((j) >= PER / 2 ? 16 : 0) & UNIT << BITS * ((j) % (PER / 2))) | 0x4b000000u)
#define FOUR_OF(w, j) \
    as_float4((uint4)(PART_OF(w, j), PART_OF(w, (j) + 1), PART_OF(w, (j) + 2), PART_OF(w, (j) + 3)))

static inline float4 four_of_row(global const REAL *restrict a, int k, int K) {
#if ALIGNED
    return k < K ? LOADV(a, k) : (float4)0;
#else
    if (k + 4 <= K) return LOADV(a, k);
    return (float4)(k < K ? LOAD(a, k) : 0, k + 1 < K ? LOAD(a, k + 1) : 0, k + 2 < K ? LOAD(a, k + 2) : 0, 0);
#endif
}

__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void quantized_skinny(global const REAL *restrict a, QUADS(b), global const SCALE *restrict scale,
                             ZEROS_PARAM global REAL *restrict y, int M, int N, int K, int blocks, float zero EPILOGUE_PARAMS) {
    local float4 shared_[STAGED > SUMMED ? STAGED : SUMMED];
    const int item = get_local_id(0), column = item % COLS, part = item / COLS;
    const int first = get_group_id(0) * COLS, lane = first % WIDTH + column, panel = first / WIDTH, m0 = get_group_id(1) * MR;
    const int quads = (K + QUAD - 1) / QUAD;
    const size_t words = (size_t)panel * quads * WIDTH + lane;
    const size_t scales = (size_t)panel * blocks * WIDTH + lane;
#if TABLE
    local float values[16]; // so that lanes that read several have no bank conflicts
    if (item < 16) values[item] = look_up_1(item);
#endif
    float total[MR];
    #pragma unroll
    for (int i = 0; i < MR; ++i) total[i] = 0;
    #pragma unroll 1
    for (int q0 = 0; q0 < quads; q0 += TURN) {
        uint4 quad[UNROLL];
        float by[UNROLL][SCALES];
        float less[UNROLL][SCALES];
        #pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            quad[u] = READ_QUAD(b, words + (size_t)min(q0 + u * PARTS + part, quads - 1) * WIDTH);
        }
        #pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const int q = q0 + u * PARTS + part;
            #pragma unroll
            for (int i = 0; i < SCALES; ++i) {
#if SPAN
                const size_t at = scales + (size_t)min((4 * q + i) / SPAN, blocks - 1) * WIDTH;
#else
                const size_t at = scales;
#endif
                by[u][i] = q < quads ? LOAD_SCALE(1, scale, at) : 0.0f;
                less[u][i] = ZEROS ? ZERO(1, at) : zero;
            }
        }
        if (q0 > 0) barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll
        for (int e0 = 0; e0 < MR * TURN * VECTORS; e0 += GROUP) {
            const int e = e0 + item, i = e / (TURN * VECTORS), v = e % (TURN * VECTORS);
            if ((MR * TURN * VECTORS) % GROUP == 0 || e < MR * TURN * VECTORS) {
                const float4 four = m0 + i < M ? four_of_row(a + (size_t)(m0 + i) * K, (q0 * VECTORS + v) * 4, K) : (float4)0;
                shared_[(i * TURN + v / VECTORS) * PLACE + v % VECTORS] = four * SHARES(v);
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const uint words[4] = {quad[u].x, quad[u].y, quad[u].z, quad[u].w};
            local const float4 *row = shared_ + (u * PARTS + part) * PLACE;
            #pragma unroll
            for (int s = 0; s < SCALES; ++s) {
                float4 sum[MR];
                #pragma unroll
                for (int i = 0; i < MR; ++i) sum[i] = (float4)0;
                #pragma unroll
                for (int v = s * (VECTORS / SCALES); v < (s + 1) * (VECTORS / SCALES); ++v) {
#if TABLE
                    const uint word = words[v / (PER / 4)], at = v % (PER / 4) * 4;
                    const float4 wide = (float4)(VALUE(word, at), VALUE(word, at + 1), VALUE(word, at + 2), VALUE(word, at + 3));
#else
                    const float4 powers = POWERS * (BITS == 2 && v % 2 ? 256.0f : 1.0f);
#if FRACTION
                    const float4 wide = (FOUR_OF(words[v / (PER / 4)], v % (PER / 4) * 4) - MAGIC) - less[u][s] * powers;
#else
                    const float4 wide = FOUR_OF(words[v / (PER / 4)], v % (PER / 4) * 4) - (less[u][s] * powers + MAGIC);
#endif
#endif
                    #pragma unroll
                    for (int i = 0; i < MR; ++i) sum[i] += row[i * TURN * PLACE + v] * wide;
                }
                #pragma unroll
                for (int i = 0; i < MR; ++i) total[i] += by[u][s] * (sum[i].x + sum[i].y + (sum[i].z + sum[i].w));
            }
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    local float *sums = (local float *)shared_;
    #pragma unroll
    for (int i = 0; i < MR; ++i) sums[i * GROUP + item] = total[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int e = item; e < MR * COLS; e += GROUP) {
        const int r = m0 + e / COLS, n = first + e % COLS;
        if (r >= M || n >= N) continue;
        float sum = 0;
        for (int p = 0; p < PARTS; ++p) sum += sums[e / COLS * GROUP + p * COLS + e % COLS];
        const ACC out = EPILOGUE1(sum, r, n, M, N);
        STORE(y, (size_t)r * N + n, out);
    }
}
