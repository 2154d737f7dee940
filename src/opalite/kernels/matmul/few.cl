// y[r, c] = sum over k of a[r, k] b[k, c] for few rows, halves and a constant b in the order of a kernel for matrix units, so that
// one copy serves prompts and single tokens. Bound by reading b: a work-item reads 16 bytes of each step of 16 terms, UNROLL
// steps on their way at any time, neighbours neighbouring ones. The rows of a lie in local memory as floats.
// A work-group of 32 * PARTS work-items owns 16 columns and MR rows, PARTS warps share out the steps, and all sums meet in
// local memory. K is a multiple of 4. Grid: ceil(N / 16) * group size, ceil(M / MR).
//   FORM     1 tiles (mma/tiles.py), 2 stages (mma/stages.py), 3 chunks of tiles of TILE columns (mma/warpgroup.py)
//   ROUNDS   times UNROLL steps of each warp whose part of the rows is in local memory at once
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
#define VECTORS (ROUNDS * UNROLL * PARTS * 4) // of a row in local memory
#define SIXTEENS (FORM == 3 ? TILE / 16 : 1)  // of a step, side by side
#define OWN (FORM == 3 ? 1 : 2)               // columns of a work-item
#define SHARES (OWN * 2 * PARTS)              // sums of a column
#define SUMMED (MR * SHARES * 4)

#define FETCH(i) \
    ((i) * PARTS + part < steps ? weights[(size_t)((i) * PARTS + part) * SIXTEENS * 32] : (uint4)0)

static inline void halves_of(float *w, uint4 raw) {
    const ushort lanes[8] = {(ushort)raw.x, (ushort)(raw.x >> 16), (ushort)raw.y, (ushort)(raw.y >> 16),
                             (ushort)raw.z, (ushort)(raw.z >> 16), (ushort)raw.w, (ushort)(raw.w >> 16)};
    const float4 low = vload_half4(0, (const half *)lanes), high = vload_half4(1, (const half *)lanes);
    w[0] = low.x, w[1] = low.y, w[2] = low.z, w[3] = low.w;
    w[4] = high.x, w[5] = high.y, w[6] = high.z, w[7] = high.w;
}

__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void matmul_few(global const REAL *restrict a, global const uint4 *restrict weights, global REAL *restrict y, int M, int N,
                       int K, int steps EPILOGUE_PARAMS) {
    local float4 shared_[MR * VECTORS > SUMMED ? MR * VECTORS : SUMMED];
    const int item = get_local_id(0), lane = item % 32, part = item / 32;
    const int sixteen = get_group_id(0), m0 = get_group_id(1) * MR, rounds = (steps + PARTS * UNROLL - 1) / (PARTS * UNROLL);
    weights += ((size_t)(sixteen / SIXTEENS) * steps * SIXTEENS + sixteen % SIXTEENS) * 32 + lane;
    uint4 ring[UNROLL];
    #pragma unroll
    for (int u = 0; u < UNROLL; ++u) ring[u] = FETCH(u);
    float sum[MR][OWN];
    #pragma unroll
    for (int i = 0; i < MR * OWN; ++i) sum[i / OWN][i % OWN] = 0;
    #pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
        const int turn = round % ROUNDS;
        if (turn == 0) {
            if (round > 0) barrier(CLK_LOCAL_MEM_FENCE);
            #pragma unroll 4
            for (int e = item; e < MR * VECTORS; e += GROUP) {
                const int r = m0 + e / VECTORS, k = round * (UNROLL * PARTS * 16) + e % VECTORS * 4;
                shared_[e] = r < M && k < K ? LOADV(a, (size_t)r * K + k) : (float4)0;
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        #pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const int step = (turn * UNROLL + u) * PARTS + part;
            float w[8];
            halves_of(w, ring[u]);
            ring[u] = FETCH((round + 1) * UNROLL + u);
#if FORM == 3
            // Terms 2 e and 2 e + 1 of four quads.
            local const float2 *pairs = (local const float2 *)(shared_ + step / 2 * 8 + step % 2) + (lane >> 3 & 1);
            #pragma unroll
            for (int i = 0; i < MR; ++i)
                #pragma unroll
                for (int t = 0; t < 4; ++t) {
                    const float2 x = pairs[(i * VECTORS + 2 * t) * 2];
                    sum[i][0] += x.x * w[2 * t];
                    sum[i][0] += x.y * w[2 * t + 1];
                }
#else
            const int at = FORM == 2 ? step / 2 * 8 + lane % 4 * 2 + step % 2 : step * 4 + lane % 4;
            #pragma unroll
            for (int i = 0; i < MR; ++i) {
                const float4 x = shared_[i * VECTORS + at];
                #pragma unroll
                for (int c = 0; c < OWN; ++c) {
                    sum[i][c] += x.x * w[4 * c];
                    sum[i][c] += x.y * w[4 * c + 1];
                    sum[i][c] += x.z * w[4 * c + 2];
                    sum[i][c] += x.w * w[4 * c + 3];
                }
            }
#endif
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    local float *sums = (local float *)shared_;
#if FORM == 3
    const int column = 4 * (lane >> 1 & 3) + 2 * (lane >> 4) + (lane & 1), share = part * 2 + (lane >> 3 & 1);
#else
    const int column = lane / 8 * 4 + lane / 4 % 2, share = part * 4 + lane % 4;
#endif
    #pragma unroll
    for (int i = 0; i < MR; ++i)
        #pragma unroll
        for (int c = 0; c < OWN; ++c) sums[(i * SHARES + share) * 16 + column + 2 * c] = sum[i][c];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int e = item; e < MR * 16; e += GROUP) {
        const int r = m0 + e / 16, n = sixteen * 16 + e % 16;
        if (r >= M || n >= N) continue;
        float total = 0;
        for (int s = 0; s < SHARES; ++s) total += sums[(e / 16 * SHARES + s) * 16 + e % 16];
        const ACC out = EPILOGUE1(total, r, n, M, N);
        STORE(y, (size_t)r * N + n, out);
    }
}
