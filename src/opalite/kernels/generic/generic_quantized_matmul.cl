// Products with, and rows of, constant matrices of `bits` bits in the panels of quantized/unpack_low_bit.cl, whose scales and zero points
// are floats here: has_zeros 0: `zero` is the one of all.
//   WIDTH   columns of a panel
#include "include/no_inline.cl"
#include "quantized/packed_word_offsets.cl"
#ifndef WIDTH
#define WIDTH 64
#endif
#define ROWS 4
#define FLOATS VEC_T(float, PACK)

#define MATRIX \
    global const uint *restrict b, global const float *restrict scale, global const float *restrict zeros, int bits, int block, \
    int has_zeros, float zero
#define MATRIX_NAMES b, scale, zeros, bits, block, has_zeros, zero

// ROWS rows of a by PACK columns of b from `first` on.
static void multiply(int first, int m0, global const float *restrict a, MATRIX, global float *restrict y, int M, int N, int K) {
    COMPILED_ONCE(M)
    if (first >= N || m0 >= M) return;
    const int per = 32 / bits, words = (K + per - 1) / per, panel = first / WIDTH, lane = first % WIDTH;
    const uint mask = (1u << bits) - 1u;
    const size_t parts = (size_t)panel * ((K + block - 1) / block) * WIDTH + lane;
    FLOATS sum[ROWS];
    global const float *a_row[ROWS];
    #pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        sum[i] = (FLOATS)0;
        a_row[i] = a + (size_t)min(m0 + i, M - 1) * K;
    }
    b += PANEL_AT(panel, words);
    #pragma nounroll
    for (int k = 0; k < K; k += per) {
        const size_t at = parts + (size_t)(k / block) * WIDTH;
        const FLOATS by = VLOAD(PACK, at, scale), less = has_zeros ? VLOAD(PACK, at, zeros) : (FLOATS)zero;
        VEC_T(uint, PACK) word;
#if DEEP == 1
        word = VLOAD(PACK, WORD_AT(k / per, lane), b);
#else
        #pragma nounroll
        for (int c = 0; c < PACK; ++c) ((uint *)&word)[c] = b[WORD_AT(k / per, lane + c)];
#endif
        const int count = min(per, K - k);
        #pragma nounroll
        for (int j = 0; j < count; ++j) {
            const FLOATS wide = (CONVERT_N(PACK, float)(word & mask) - less) * by;
            word >>= (uint)bits;
            #pragma unroll
            for (int i = 0; i < ROWS; ++i) sum[i] += (FLOATS)a_row[i][k + j] * wide;
        }
    }
    const int columns = min(PACK, N - first);
    #pragma nounroll
    for (int i = 0; i < ROWS && m0 + i < M; ++i) {
        const FLOATS found = sum[i];
        #pragma nounroll
        for (int c = 0; c < columns; ++c) y[(size_t)(m0 + i) * N + first + c] = ((const float *)&found)[c];
    }
}

// Grid: (ceil(N / WIDTH) * WIDTH / PACK, ceil(M / ROWS)).
kernel void multiply_words(global const float *restrict a, MATRIX, global float *restrict y, int M, int N, int K) {
    multiply(get_global_id(0) * PACK, get_global_id(1) * ROWS, a, MATRIX_NAMES, y, M, N, K);
}

// Groups of rows of a in 255 steps, as quantized/quantize_activations.cl makes bytes of them. Grid: (groups of a row, M).
kernel void round_floats(global const float *restrict a, global float *restrict rounded, int M, int K, int group) {
    const int first = get_global_id(0) * group, m = get_global_id(1);
    if (first >= K || m >= M) return;
    const int count = min(group, K - first);
    const size_t at = (size_t)m * K + first;
    // As integers, magnitudes are ordered as they are, NaN above all.
    uint bits = 0;
    #pragma nounroll
    for (int k = 0; k < count; ++k) bits = max(bits, as_uint(a[at + k]) & 0x7fffffffu);
    const float most = as_float(bits), by = most / 127.0f;
    const float turns = most > 1e-36f ? 127.0f / most : 0.0f; // below, it would be infinite
    #pragma nounroll
    for (int k = 0; k < count; ++k) rounded[at + k] = rint(a[at + k] * turns) * by;
}

// Row number `indices[i]` of a matrix of `size` rows; indices are int, or long where `wide`. Grid: (words of a row, count).
kernel void read_words(MATRIX, global const uchar *restrict indices, global float *restrict y, int count, int size, int columns,
                       int wide) {
    const int word = get_global_id(0), i = get_global_id(1), per = 32 / bits, words = (columns + per - 1) / per;
    if (word >= words || i >= count) return;
    long row = wide ? ((global const long *)indices)[i] : ((global const int *)indices)[i];
    row = clamp(row < 0 ? row + size : row, 0L, (long)size - 1);
    const int panel = (int)(row / WIDTH), lane = (int)(row % WIDTH), blocks = (columns + block - 1) / block;
    const size_t at = ((size_t)panel * blocks + word * per / block) * WIDTH + lane;
    const uint numbers = b[PANEL_AT(panel, words) + WORD_AT(word, lane)], mask = (1u << bits) - 1u;
    const float by = scale[at], less = has_zeros ? zeros[at] : zero;
    #pragma nounroll
    for (int j = 0; j < per && word * per + j < columns; ++j)
        y[(size_t)i * columns + word * per + j] = ((float)(numbers >> (j * bits) & mask) - less) * by;
}
