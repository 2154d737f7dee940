// y[m, n] = sum_k a[m, k] (b[k, n] - zero[n, k / block]) scale[n, k / block] for few rows, on CPUs: bound by reading b.
// A work-item owns a panel of WIDTH = NV * PACK columns and MR rows. It widens each word of b in registers, once for all rows.
// Blocks begin at words. Grid: (ceil(N / WIDTH), ceil(M / MR)), work-groups of one work-item.
//   MR   rows of a work-item     NV   vectors of a panel
//   KS   separate sums for neighbouring k, to hide the latency of multiply-add where there are few rows
#include "quantized/unpack.cl"
#include "include/prefetch.cl"
#include "include/reduce_lanes.cl"
#ifndef MR
#define MR 1
#define NV 4
#define KS 2
#endif
#define WIDTH (NV * PACK)
#define AHEAD (64 * 16) // words: a page
#define LONGEST 256 // terms of a sum: of longer blocks, sums are added up, which loses fewer digits
#define FLOATS VEC_T(float, PACK)
#define WORDS VEC_T(uint, PACK)

static inline float sum_of(global const REAL *restrict a, int count) {
    ACCV sums = (ACCV)0;
    int k = 0;
    for (; k + PACK <= count; k += PACK) sums += LOADV(a, k);
    float sum = SUM_LANES(sums);
    for (; k < count; ++k) sum += LOAD(a, k);
    return sum;
}

__attribute__((reqd_work_group_size(1, 1, 1)))
kernel void quantized_rows(global const REAL *restrict a, global const uint *restrict b, global const SCALE *restrict scale,
                           ZEROS_PARAM global REAL *restrict y, int M, int N, int K, int block, float middle EPILOGUE_PARAMS) {
    const int panel = get_global_id(0), m0 = get_global_id(1) * MR;
    if (panel * WIDTH >= N || m0 >= M) return;
    const size_t scales = (size_t)panel * ((K + block - 1) / block) * WIDTH;
    b += (size_t)panel * ((K + PER - 1) / PER) * WIDTH;
    global const REAL *a_row[MR];
    FLOATS total[MR][NV];
    #pragma unroll
    for (int i = 0; i < MR; ++i) {
        a_row[i] = a + (size_t)min(m0 + i, M - 1) * K;
        #pragma unroll
        for (int v = 0; v < NV; ++v) total[i][v] = (FLOATS)0;
    }
    #pragma unroll 1
    for (int k0 = 0, k1; k0 < K; k0 = k1) {
        const int at_block = k0 / block;
        const size_t at = scales + (size_t)at_block * WIDTH;
        k1 = min(K, min(k0 + LONGEST, (at_block + 1) * block));
        FLOATS sum[KS][MR][NV];
        #pragma unroll
        for (int s = 0; s < KS; ++s)
            #pragma unroll
            for (int i = 0; i < MR * NV; ++i) sum[s][i / NV][i % NV] = (FLOATS)0;
        int k = k0;
        #pragma unroll 1
        for (; k + PER <= k1; k += PER) {
            WORDS words[NV];
            #pragma unroll
            for (int v = 0; v < NV; ++v) {
                words[v] = LOAD_AT(uint, PACK, b + v * PACK);
                PREFETCH(b + v * PACK + AHEAD);
            }
            #pragma unroll
            for (int j = 0; j < PER; ++j) {
                FLOATS wide[NV];
                #pragma unroll
                for (int v = 0; v < NV; ++v) wide[v] = UNPACK(PACK, words[v], j);
                #pragma unroll
                for (int i = 0; i < MR; ++i) {
                    const FLOATS av = (FLOATS)LOAD(a_row[i], k + j);
                    #pragma unroll
                    for (int v = 0; v < NV; ++v) sum[j % KS][i][v] += av * wide[v];
                }
            }
            b += WIDTH;
        }
        if (k < k1) { // the last word of all
            #pragma unroll 1
            for (int j = 0; k + j < k1; ++j) {
                #pragma unroll
                for (int v = 0; v < NV; ++v) {
                    const FLOATS wide = UNPACK(PACK, LOAD_AT(uint, PACK, b + v * PACK), j);
                    #pragma unroll
                    for (int i = 0; i < MR; ++i) sum[0][i][v] += (FLOATS)LOAD(a_row[i], k + j) * wide;
                }
            }
        }
#if !TABLE
        float sums[MR];
        #pragma unroll
        for (int i = 0; i < MR; ++i) sums[i] = sum_of(a_row[i] + k0, k1 - k0);
#endif
        #pragma unroll
        for (int v = 0; v < NV; ++v) {
            const FLOATS by = LOAD_SCALE(PACK, scale, at + v * PACK) * STEP, less = MIDDLE(PACK, at + v * PACK);
            #pragma unroll
            for (int i = 0; i < MR; ++i) {
                #pragma unroll
                for (int s = 1; s < KS; ++s) sum[0][i][v] += sum[s][i][v];
#if TABLE
                total[i][v] += by * sum[0][i][v];
#else
                total[i][v] += by * (sum[0][i][v] - less * sums[i]);
#endif
            }
        }
    }
    // In one loop, so that the epilogue is compiled once and not for each vector.
    const int low = panel * WIDTH, high = min(N, low + WIDTH);
    #pragma unroll 1
    for (int i = 0; i < MR && m0 + i < M; ++i) {
        const int r = m0 + i;
        const float *results = (const float *)total[i];
        #pragma unroll 1
        for (int c = low; c < high;) {
            if (c + PACK <= high) {
                const ACCV out = EPILOGUE(*(const FLOATS *)(results + (c - low)), r, c, M, N);
                STOREV(y, (size_t)r * N + c, out);
                c += PACK;
            } else {
                const ACC out = EPILOGUE1(results[c - low], r, c, M, N);
                STORE(y, (size_t)r * N + c, out);
                ++c;
            }
        }
    }
}
