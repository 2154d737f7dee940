// y[m, n] = sum_k a[m, k] (b[k, n] - zero[n, k / block]) scale[n, k / block] for many rows, on CPUs.
// A work-item owns a panel of WIDTH = NV * PACK columns and up to `rows` rows. It widens CHUNK of the panel's k at a time into
// memory that stays in the first-level cache, for all tiles of MR rows in turn, whose sums are kept meanwhile.
// Blocks begin at words. Grid: (ceil(N / WIDTH), ceil(M / rows)), work-groups of one work-item; rows at most GROUP * MR.
#include "quantized/unpack.cl"
#include "include/prefetch.cl"
#ifndef MR
#define MR 6
#define NV 4
#endif
#define WIDTH (NV * PACK)
#define CHUNK 64
#define GROUP 24
#define AHEAD (64 * 16) // words: a page
#define FLOATS VEC_T(float, PACK)
#define WORDS VEC_T(uint, PACK)

__attribute__((reqd_work_group_size(1, 1, 1)))
kernel void quantized_panel(global const REAL *restrict a, global const uint *restrict b, global const SCALE *restrict scale,
                            ZEROS_PARAM global REAL *restrict y, int M, int N, int K, int block, float middle,
                            int rows EPILOGUE_PARAMS) {
    const int panel = get_global_id(0), first = get_global_id(1) * rows;
    if (panel * WIDTH >= N || first >= M) return;
    const int end = min(M, first + rows), tiles = (end - first + MR - 1) / MR;
    const size_t scales = (size_t)panel * ((K + block - 1) / block) * WIDTH;
    b += (size_t)panel * ((K + PER - 1) / PER) * WIDTH;
    FLOATS wide[CHUNK][NV];
    FLOATS kept[GROUP][MR][NV];
    for (int k0 = 0; k0 < K; k0 += CHUNK) {
        const int count = min(K - k0, CHUNK);
        #pragma unroll 1
        for (int k = 0; k < count; k += PER) {
            const size_t at = scales + (size_t)((k0 + k) / block) * WIDTH;
            #pragma unroll
            for (int v = 0; v < NV; ++v) {
                const WORDS words = LOAD_AT(uint, PACK, b + v * PACK);
                PREFETCH(b + v * PACK + AHEAD);
                const FLOATS by = LOAD_SCALE(PACK, scale, at + v * PACK) * STEP, less = MIDDLE(PACK, at + v * PACK);
                #pragma unroll
                for (int j = 0; j < PER; ++j) wide[k + j][v] = (UNPACK(PACK, words, j) - less) * by;
            }
            b += WIDTH;
        }
        #pragma unroll 1
        for (int t = 0; t < tiles; ++t) {
            global const REAL *a_row[MR];
            FLOATS sum[MR][NV];
            #pragma unroll
            for (int i = 0; i < MR; ++i) {
                // Rows past the end repeat the last one and are not stored.
                a_row[i] = a + (size_t)min(first + t * MR + i, end - 1) * K + k0;
                #pragma unroll
                for (int v = 0; v < NV; ++v) sum[i][v] = k0 > 0 ? kept[t][i][v] : (FLOATS)0;
            }
            #pragma unroll 1
            for (int k = 0; k < count; ++k) {
                #pragma unroll
                for (int i = 0; i < MR; ++i) {
                    const FLOATS av = (FLOATS)LOAD(a_row[i], k);
                    #pragma unroll
                    for (int v = 0; v < NV; ++v) sum[i][v] += av * wide[k][v];
                }
            }
            #pragma unroll
            for (int i = 0; i < MR * NV; ++i) kept[t][i / NV][i % NV] = sum[i / NV][i % NV];
        }
    }
    const int low = panel * WIDTH, high = min(N, low + WIDTH);
    #pragma unroll 1
    for (int r = first; r < end; ++r) {
        const float *results = (const float *)kept + (r - first) * WIDTH;
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
