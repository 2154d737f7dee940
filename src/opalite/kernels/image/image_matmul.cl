// y[z, m, n] = sum over k of a[z, m, k] * b[z, k, n], b and a or y being images whose texels lie along rows. A work-item computes
// TM rows of TB blocks of four columns; SPLIT work-items share the terms and add up in local memory.
//   A_BUFFER, Y_BUFFER   that side is a row-major buffer
//   B        0: a constant, texel (k, block) has b[k] for the four columns of a block, zeros past either end
//            1: texel (block, z * K + k); 2: b is stored transposed, texel (k / 4, z * N + n)
//   LONG     1: many terms, whose sums are added up by CHUNK turns, so that rounding errors do not accumulate in one number
// M: rows of one product, H: those of one batch of y as its image counts them; spread: rows of `a` from one product to the
// next, 0 where all of them have the same. Grid: ceil(blocks / TB), ceil(M / TM),
// batches * SPLIT; work-group where SPLIT > 1: GX, 1, SPLIT.
#ifndef TM
#define TM 4
#define TB 1
#define SPLIT 1
#define B 0
#endif
#include "image/matmul_sides.cl"
#define CHUNK 128
#define ADD_CHUNK() do { \
        _Pragma("unroll") \
        for (int i = 0; i < TM; ++i) { \
            _Pragma("unroll") \
            for (int j = 0; j < TB; ++j) { \
                done[i][j] += acc[i][j]; \
                acc[i][j] = (ACCV)0; \
            } \
        } \
    } while (0)

kernel GROUP void image_matmul(A_PARAM, read_only image2d_t b, Y_PARAM, int M, int N, int K, int H, int spread,
                               int batches EPILOGUE_PARAMS) {
#include "image/start_matmul_sums.cl"
#if LONG
    ACCV done[TM][TB];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TB; ++j) done[i][j] = (ACCV)0;
    }
#endif
    for (int k = share * 4, turn = 1; inside && k < K; k += 4 * SPLIT, ++turn) {
        ACCV in[TM];
        #pragma unroll
        for (int i = 0; i < TM; ++i) in[i] = READ_A(k, z * spread + min(m0 + i, M - 1));
        #pragma unroll
        for (int j = 0; j < TB; ++j) {
            const int block = b0 + j;
#if B == 2
            const ACCV w0 = READ_ACC(b, k / 4, z * N + block * 4), w1 = READ_ACC(b, k / 4, z * N + block * 4 + 1);
            const ACCV w2 = READ_ACC(b, k / 4, z * N + block * 4 + 2), w3 = READ_ACC(b, k / 4, z * N + block * 4 + 3);
            #pragma unroll
            for (int i = 0; i < TM; ++i) acc[i][j] += (ACCV)(dot(in[i], w0), dot(in[i], w1), dot(in[i], w2), dot(in[i], w3));
#else
#if B == 1
#define ROW(l) (k + (l) < K ? z * K + k + (l) : -1)
            const ACCV w0 = READ_ACC(b, block, ROW(0)), w1 = READ_ACC(b, block, ROW(1));
            const ACCV w2 = READ_ACC(b, block, ROW(2)), w3 = READ_ACC(b, block, ROW(3));
#else
            const ACCV w0 = READ_ACC(b, k, block), w1 = READ_ACC(b, k + 1, block);
            const ACCV w2 = READ_ACC(b, k + 2, block), w3 = READ_ACC(b, k + 3, block);
#endif
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                acc[i][j] = mad(in[i].x, w0, acc[i][j]);
                acc[i][j] = mad(in[i].y, w1, acc[i][j]);
                acc[i][j] = mad(in[i].z, w2, acc[i][j]);
                acc[i][j] = mad(in[i].w, w3, acc[i][j]);
            }
#endif
        }
#if LONG
        if (turn % CHUNK == 0) ADD_CHUNK();
#endif
    }
#if LONG
    ADD_CHUNK();
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TB; ++j) acc[i][j] = done[i][j];
    }
#endif
#include "image/store_matmul_rows.cl"
}
