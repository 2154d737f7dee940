// y[r, c] = sum over k of a[r, k] b[k, c] for few rows, halves and a constant b in the order of a kernel for matrix units, so that
// one copy serves prompts and single tokens. Bound by reading b: a work-item reads 16 bytes of each step of 16 terms, UNROLL
// steps in flight at any time, neighbours adjacent ones. The rows of a are in local memory.
// A warp passes loaded data to the matrix units unchanged, since multiplying in each work-item is slower than memory:
// in tiles and stages as the right side, rows of a being the left. In chunks a work-item has 8 terms of one column, where
// units want 4 of several; so a row of a is 8 rows of the left side, each with zeros but for the terms of one work-item of four
// and of one half of quads, and of the sums half is wanted.
// A work-group of 32 * PARTS work-items owns `blocks` times 16 columns and MR rows, PARTS warps split the steps, and all
// sums of 16 columns are reduced in local memory while the next ones are loaded. K is a multiple of 4.
// Grid: ceil(N / 16 / blocks) * group size, ceil(M / MR).
//   FORM     1 tiles (mma/mma_tile.py), 2 stages (mma/staged_tile.py), 3 chunks of tiles of TILE columns (mma/wgmma_tile.py)
//   ROUNDS   times UNROLL steps of each warp whose part of the rows is in local memory at once
//   NORMALIZED   not 0: rows are normalised first (matmul/normalize_rows_prologue.cl), and ROUNDS covers all of them
#ifndef FORM
#define FORM 1
#define TILE 16
#define PARTS 8
#define UNROLL 8
#define MR 1
#define ROUNDS 2
#endif
#include "include/aligned_blocks.cl"
#define GROUP (32 * PARTS)
#define INLINE_PTX 1
#include "include/async_constant_loads.cl"
#include "mma/mma_instructions.cl"
#define QUADS (ROUNDS * UNROLL * PARTS * 4)  // of a row in local memory
#define SIXTEENS (FORM == 3 ? TILE / 16 : 1) // of a step, side by side
#define ROW (QUADS + (MR > 1 ? 4 : 0))       // quads from one row to the next, in other banks
#define SHARES (FORM == 3 ? 2 * PARTS : PARTS) // sums of a column
#define TILES (FORM == 3 ? (MR + 1) / 2 : 2) // of sums: by two rows, or by 8 columns
#define STAGED (MR * ROW + 2)                // and zeros
#define SUMMED (MR * SHARES * 16)

#define PLACE_OF_BLOCK(n) (((size_t)((n) / SIXTEENS) * steps * SIXTEENS + (n) % SIXTEENS) * 32)
#define FETCH(from, i) \
    ((i) * PARTS + part < steps ? (from)[(size_t)((i) * PARTS + part) * SIXTEENS * 32] : (uint4)0)

// Address of quad q of a row: pairs of terms in multiplication order.
static inline void put_quad(local uint *row, int q, uint2 quad) {
#if FORM == 3
    local uint *to = row + (q / 8 * 2 + q % 2) * 8 + q % 8 / 2;
    to[0] = quad.x, to[4] = quad.y;
#else
    ((local uint2 *)row)[q] = quad;
#endif
}

#define ROW_TERMS (4 * QUADS)
#include "matmul/normalize_rows_prologue.cl"

__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void matmul_few(global const REAL *restrict a, ROW_SCALE_PARAM ROW_BIAS_PARAM global const uint4 *restrict weights,
                       global REAL *restrict y, int M, int N, int K, int steps, int blocks EPSILON_PARAM EPILOGUE_PARAMS) {
    local uint4 shared_[STAGED / 2 + 1];
    local float sums_[2][SUMMED]; // of this block, and of the previous one
    UNITS;
    local uint2 *const rows = (local uint2 *)shared_;
    const int item = get_local_id(0), lane = LANE, part = WARP, own = lane / 4, pair = lane % 4;
    const int first = get_group_id(0) * blocks, last = min(first + blocks, (N + 15) / 16), m0 = get_group_id(1) * MR;
    const int rounds = NORMALIZED ? ROUNDS : (steps + PARTS * UNROLL - 1) / (PARTS * UNROLL);
    weights += lane;
    uint4 ring[UNROLL];
    {
        global const uint4 *const from = weights + PLACE_OF_BLOCK(first);
        #pragma unroll
        for (int u = 0; u < UNROLL; ++u) ring[u] = FETCH(from, u);
    }
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
    float sum[TILES][4];
    #pragma unroll
    for (int i = 0; i < TILES * 4; ++i) sum[i / 4][i % 4] = ZERO;
    if (item < 4) ((local uint *)(rows + MR * ROW))[item] = 0;
#if FORM == 3
    const bool mine = own % 4 == pair;
    const int high = own / 4;
#endif
#if NORMALIZED
    #pragma unroll
    for (int i = 0; i < MR; ++i) read_part(parts + i, a + (size_t)min(m0 + i, M - 1) * K, K);
    normalise_rows(parts, &scales, &biases, sums_[0], K, epsilon, units_);
    #pragma unroll
    for (int e = 0; e < MR * HELD * (VECTOR / 4); ++e) {
        const int i = e / (VECTOR / 4) / HELD, u = e / (VECTOR / 4) % HELD, p = e % (VECTOR / 4) * 2;
        const uint2 quad = (uint2)(PAIR(parts[i], u, p), PAIR(parts[i], u, p + 1));
        if (VECTOR_AT(u) < ROW_TERMS) put_quad((local uint *)(rows + i * ROW), (VECTOR_AT(u) + 2 * p) / 4, quad);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    int round = 0;
    #pragma unroll 1
    for (int block = first; block < last;) {
        const int turn = round % ROUNDS;
#if !NORMALIZED
        if (turn == 0 && (block == first || rounds > ROUNDS)) {
            if (round > 0 || block > first) barrier(CLK_LOCAL_MEM_FENCE);
            #pragma unroll 4
            for (int e = item; e < MR * QUADS; e += GROUP) {
                const int i = e / QUADS, q = e % QUADS, k = round * (UNROLL * PARTS * 16) + q * 4;
                const bool is_there = m0 + i < M && k < K;
                put_quad((local uint *)(rows + i * ROW), q,
                         is_there ? *(global const uint2 *)(a + (size_t)(m0 + i) * K + k) : (uint2)0);
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
#endif
        const bool ends = round + 1 == rounds;
        const int next = block + (ends ? 1 : 0), there = ends ? 0 : round + 1;
        const int ahead = next < last ? there * UNROLL : steps; // nothing is left to read
        global const uint4 *const from = weights + PLACE_OF_BLOCK(next);
        UNROLLED
        for (int u = 0; u < UNROLL; ++u) {
            const int step = (turn * UNROLL + u) * PARTS + part;
            const uint4 w = ring[u];
            ring[u] = FETCH(from, ahead + u);
#if FORM == 3
            UNROLLED
            for (int t = 0; t < TILES; ++t) {
                local const uint4 *at = (local const uint4 *)(rows + 2 * t * ROW) + step * 2 + high;
                const uint4 x = *(mine ? at : (local const uint4 *)(rows + MR * ROW));
                uint4 z = (uint4)0;
                if (2 * t + 1 < MR) z = *(mine ? at + ROW / 2 : (local const uint4 *)(rows + MR * ROW));
                MULTIPLY(sum[t], x.x, z.x, x.y, z.y, w.x, w.y);
                MULTIPLY(sum[t], x.z, z.z, x.w, z.w, w.z, w.w);
            }
#else
            const int at = FORM == 2 ? step / 2 * 8 + pair * 2 + step % 2 : step * 4 + pair;
            const uint2 x = rows[own < MR ? own * ROW + at : MR * ROW];
            uint2 z = (uint2)0;
            if (MR > 8) z = rows[own + 8 < MR ? (own + 8) * ROW + at : MR * ROW];
            MULTIPLY(sum[0], x.x, z.x, x.y, z.y, w.x, w.y);
            MULTIPLY(sum[1], x.x, z.x, x.y, z.y, w.z, w.w);
#endif
        }
        round = there;
        if (!ends) continue;
        local float *const sums = sums_[block % 2];
        #pragma unroll
        for (int e = 0; e < TILES * 4; ++e) {
            const int t = e / 4, i = e % 4 / 2, c = e % 2;
#if FORM == 3
            const int row = 2 * t + i, column = 8 * c + own / 2 % 2 * 4 + pair / 2 * 2 + own % 2, share = part * 2 + pair % 2;
            const bool is_mine = row < MR && own / 4 == pair % 2;
#else
            const int row = 8 * i + own, column = 4 * pair + c + 2 * t, share = part;
            const bool is_mine = row < MR;
#endif
            if (is_mine) sums[(row * SHARES + share) * 16 + column] = sum[t][e % 4];
            sum[t][e % 4] = ZERO;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int e = item; e < MR * 16; e += GROUP) {
            const int r = m0 + e / 16, n = block * 16 + e % 16;
            if (r >= M || n >= N) continue;
            float total = 0;
            for (int s = 0; s < SHARES; ++s) total += sums[(e / 16 * SHARES + s) * 16 + e % 16];
            const ACC out = EPILOGUE1(total, r, n, M, N);
            STORE(y, (size_t)r * N + n, out);
        }
        ++block;
    }
}
