// y[z, m, n] = sum_k a[z, m, k] b[z, k, n] in register tiles of MR rows by NV vectors of PACK columns, for CPUs.
// One work-item owns a panel of WIDTH = NV * PACK columns and iterates down `rows` rows (a multiple of MR). It uses a chunk
// of the panel, some k that fit the L1 cache, for up to GROUP tiles in turn, whose sums are kept in between, and
// prefetches the next chunk, since hardware prefetchers stop at the end of a page. Each chunk is summed by itself, so
// that rounding errors grow with the number of chunks rather than with K.
// Grid: (ceil(N / WIDTH), ceil(M / rows), batches), work-groups of one work-item.
//   PANELS    b holds panels [ceil(N / WIDTH), K, WIDTH], zeros past N; else rows of ldb elements, and N >= WIDTH
//   KS        separate sums for adjacent k, to hide the latency of multiply-add in small tiles
//   FETCH     vectors of panels fetched at each k: 1, or NV where a panel serves one tile, or 0 where it is in the cache then
//   TRANS_A   a is stored [K, M]
#include "matmul/batch_offsets.cl"
#include "include/prefetch.cl"
#ifndef MR
#define MR 8
#define NV 2
#define KS 1
#endif
#ifndef PANELS
#define PANELS 1
#endif
#ifndef FETCH
#define FETCH 1
#endif
#ifndef TRANS_A
#define TRANS_A 0
#endif
#define WIDTH (NV * PACK)
#define GROUP 8
#define CHUNK_BYTES 16384
#define FAR_BYTES (1 << 20)
#if TRANS_A
#define A_AT(i, k) LOAD(a_row[i], (size_t)(k) * lda)
#else
#define A_AT(i, k) LOAD(a_row[i], k)
#endif

__attribute__((reqd_work_group_size(1, 1, 1)))
kernel void matmul_panel(global const REAL *restrict a, global const REAL *restrict b, global REAL *restrict y,
                         global const int *batch, int dims, int batches, int M, int N, int K, int lda, int ldb,
                         int rows EPILOGUE_PARAMS) {
    const int panel = get_global_id(0), first = get_global_id(1) * rows, z = get_global_id(2);
    if (panel * WIDTH >= N || first >= M || z >= batches) return;
    size_t a_offset, b_offset;
    batch_offsets(batch, dims, z, &a_offset, &b_offset);
    // Without PANELS the last panel starts early enough to be inside the rows; it overlaps the previous one.
    const int low = panel * WIDTH, high = min(N, low + WIDTH), n0 = PANELS ? low : min(low, N - WIDTH);
    const int end = min(M, first + rows), step = PANELS ? WIDTH : ldb;
    a += a_offset;
    b += b_offset + (PANELS ? (size_t)panel * K * WIDTH : (size_t)n0);
    // Equal chunks, a multiple of KS, of about the wanted size.
    const int chunks = max(1, (int)(((size_t)K * (WIDTH * sizeof(REAL)) + CHUNK_BYTES / 2) / CHUNK_BYTES));
    const int chunk = ((K + chunks - 1) / chunks + KS - 1) / KS * KS;
    global const REAL *next = b + (size_t)K * WIDTH;
    // Rows beyond the L2 cache are read in pieces of a chunk, each from another page, which hardware
    // prefetchers do not predict: each tile prefetches those of the next one.
    const bool is_far = (size_t)M * K * sizeof(REAL) > FAR_BYTES;
    ACCV kept[GROUP][MR * NV];
    for (int m0 = first; m0 < end; m0 += GROUP * MR) {
        const int m1 = min(end, m0 + GROUP * MR);
        // With a single chunk, all tiles prefetch their share of the next panel.
        const int sharing = ((chunk < K ? m1 - m0 : end - first) + MR - 1) / MR;
        const int ahead = FETCH > 1 ? WIDTH : max(1, WIDTH / sharing);
        int k0 = 0;
        do {
            const int k1 = min(K, k0 + chunk);
            if (chunk < K) next = b + (size_t)k1 * WIDTH;
            for (int m = m0; m < m1; m += MR) {
                global const REAL *a_row[MR];
                ACCV sum[KS][MR][NV], *tile = kept[(m - m0) / MR];
                #pragma unroll
                for (int i = 0; i < MR; ++i) {
                    // Rows past the end repeat the last one and are not stored.
                    const int row = min(m + i, end - 1);
                    a_row[i] = a + (TRANS_A ? (size_t)row : (size_t)row * lda);
                    #pragma unroll
                    for (int s = 0; s < KS; ++s)
                        #pragma unroll
                        for (int j = 0; j < NV; ++j) sum[s][i][j] = (ACCV)0;
                }
#if !TRANS_A
                if (is_far) {
                    const int next_m = m + MR < m1 ? m + MR : m0, next_k = m + MR < m1 ? k0 : k1;
                    #pragma unroll 1
                    for (int i = 0; i < MR; ++i)
                        #pragma unroll 1
                        for (int c = 0; c < chunk; c += 64 / (int)sizeof(REAL))
                            PREFETCH(a + (size_t)min(next_m + i, end - 1) * lda + next_k + c);
                }
#endif
                global const REAL *b_row = b + (size_t)k0 * step;
                int k = k0;
                #pragma unroll 1
                for (; k + KS <= k1; k += KS) {
                    #pragma unroll
                    for (int s = 0; s < KS; ++s) {
#if PANELS
                        #pragma unroll
                        for (int j = 0; j < FETCH; ++j) PREFETCH(next + j * PACK);
                        next += ahead;
#endif
                        ACCV bv[NV];
                        #pragma unroll
                        for (int j = 0; j < NV; ++j) bv[j] = LOADV(b_row, j * PACK);
                        #pragma unroll
                        for (int i = 0; i < MR; ++i) {
                            const ACCV av = (ACCV)A_AT(i, k + s);
                            #pragma unroll
                            for (int j = 0; j < NV; ++j) sum[s][i][j] += av * bv[j];
                        }
                        b_row += step;
                    }
                }
#if KS > 1
                #pragma unroll 1
                for (; k < k1; ++k) {
                    #pragma unroll
                    for (int i = 0; i < MR; ++i)
                        #pragma unroll
                        for (int j = 0; j < NV; ++j) sum[0][i][j] += (ACCV)A_AT(i, k) * LOADV(b_row, j * PACK);
                    b_row += step;
                }
#endif
                #pragma unroll
                for (int i = 0; i < MR; ++i)
                    #pragma unroll
                    for (int j = 0; j < NV; ++j) {
                        #pragma unroll
                        for (int s = 1; s < KS; ++s) sum[0][i][j] += sum[s][i][j];
                        tile[i * NV + j] = k0 > 0 ? tile[i * NV + j] + sum[0][i][j] : sum[0][i][j];
                    }
            }
            k0 += chunk;
        } while (k0 < K);
        // From memory and in one loop, so that the epilogue is compiled once and not for each vector of the tile.
        #pragma unroll 1
        for (int m = m0; m < m1; ++m) {
            const int r = z * M + m;
            const size_t at = (size_t)r * N;
            const ACC *sums = (const ACC *)kept + (m - m0) * WIDTH;
            #pragma unroll 1
            for (int c = low; c < high;) {
                if ((c - n0) % PACK == 0 && c + PACK <= high) {
                    const ACCV out = EPILOGUE(*(const ACCV *)(sums + (c - n0)), r, c, batches * M, N);
                    STOREV(y, at + c, out);
                    c += PACK;
                } else {
                    const ACC out = EPILOGUE1(sums[c - n0], r, c, batches * M, N);
                    STORE(y, at + c, out);
                    ++c;
                }
            }
        }
    }
}
