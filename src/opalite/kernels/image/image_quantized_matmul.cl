// y[m, n] = sum_k a[m, k] (b[k, n] - zero[n, k / block]) scale[n, k / block], a or y (or both) being images whose texels lie along
// rows (matmul_sides.cl). b is a constant of few bits in panels 32 wide and 4 deep (quantized/packed_word_offsets.cl): a quad,
// 16 bytes of a column, is a texel (include/texel_buffer.cl). A work-item computes TM rows of TB blocks of four columns; SPLIT
// work-items share the quads and add up in local memory.
//   SPAN   words of a block of terms with a scale; 0: one block a column
// H: rows of one batch of y as its image counts them. Grid: ceil(blocks / TB), ceil(M / TM), SPLIT; work-group where
// SPLIT > 1: GX, 1, SPLIT.
#include "quantized/unpack_low_bit.cl"
#include "include/texel_buffer.cl"
#include "image/matmul_sides.cl"
#ifndef TM
#define TM 4
#define TB 1
#define SPLIT 1
#define SPAN 4
#endif
#define WIDTH 32
#define QUAD (4 * PER)             // terms of a quad
#define FOURS (QUAD / 4)
#define SCALES (SPAN % 4 ? 4 : 1)  // scales of a quad
#define MAGIC 8388608.0f
#if TABLE
#define NUMBER(w, j) look_up_1((w) >> ((j) * BITS))
#else
#define NUMBER(w, j) (as_float(((w) >> ((j) * BITS) & (LEVELS - 1u)) | 0x4b000000u) - MAGIC)
#endif
#define FOUR_OF(w, j) ((ACCV)(NUMBER(w, j), NUMBER(w, (j) + 1), NUMBER(w, (j) + 2), NUMBER(w, (j) + 3)))

kernel GROUP void image_quantized_matmul(A_PARAM, QUADS(b), global const SCALE *restrict scale, ZEROS_PARAM Y_PARAM, int M,
                                         int N, int K, int H, int parts_of_k, float zero EPILOGUE_PARAMS) {
    const int quads = (K + QUAD - 1) / QUAD, batches = 1;
#include "image/start_matmul_sums.cl"
    for (int q = share; inside && q < quads; q += SPLIT) {
        uint words[TB][4][4];
        size_t column[TB]; // of the panel's scales
        #pragma unroll
        for (int j = 0; j < TB; ++j) {
            const int n = min(b0 + j, blocks - 1) * 4, panel = n / WIDTH;
            column[j] = (size_t)panel * parts_of_k * WIDTH + n % WIDTH;
            #pragma unroll
            for (int c = 0; c < 4; ++c)
                vstore4(READ_QUAD(b, ((size_t)panel * quads + q) * WIDTH + n % WIDTH + c), 0, words[j][c]);
        }
        #pragma unroll
        for (int s = 0; s < SCALES; ++s) {
            ACCV by[TB], less[TB], sum[TM][TB];
            #pragma unroll
            for (int j = 0; j < TB; ++j) {
#if SPAN
                const size_t at = column[j] + (size_t)min((4 * q + s) / SPAN, parts_of_k - 1) * WIDTH;
#else
                const size_t at = column[j];
#endif
                by[j] = LOAD_SCALE(4, scale, at);
                less[j] = ZEROS ? ZERO(4, at) : zero;
                #pragma unroll
                for (int i = 0; i < TM; ++i) sum[i][j] = (ACCV)0;
            }
            #pragma unroll
            for (int v = s * (FOURS / SCALES); v < (s + 1) * (FOURS / SCALES); ++v) {
                const int k = q * QUAD + v * 4, w = v / (PER / 4), first = v % (PER / 4) * 4;
                ACCV in[TM];
                #pragma unroll
                for (int i = 0; i < TM; ++i) in[i] = k < K ? READ_A(k, min(m0 + i, M - 1)) : (ACCV)0;
                #pragma unroll
                for (int j = 0; j < TB; ++j) {
                    const ACCV w0 = FOUR_OF(words[j][0][w], first) - less[j].x, w1 = FOUR_OF(words[j][1][w], first) - less[j].y;
                    const ACCV w2 = FOUR_OF(words[j][2][w], first) - less[j].z, w3 = FOUR_OF(words[j][3][w], first) - less[j].w;
                    #pragma unroll
                    for (int i = 0; i < TM; ++i)
                        sum[i][j] += (ACCV)(dot(in[i], w0), dot(in[i], w1), dot(in[i], w2), dot(in[i], w3));
                }
            }
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                #pragma unroll
                for (int j = 0; j < TB; ++j) acc[i][j] = mad(by[j], sum[i][j], acc[i][j]);
            }
        }
    }
#include "image/store_matmul_rows.cl"
}
