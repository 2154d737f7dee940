// Constant matrices of BITS bits as kernels hold them: panels of WIDTH columns, each
// [ceil(K / PER)][WIDTH] words of 32 bits, or several words of a column side by side (packed_word_offsets.cl). A word holds PER adjacent
// numbers of its column, the first one in the low bits.
// Scales are [panels][blocks][WIDTH], zero points likewise.
//   BITS   2, 4 or 8
//   ZEROS  0: one zero point for all, part of the argument `middle`; 1: bytes; 2: floats
//   HALF_SCALES   scales are halves
//   TABLE  numbers are not what they stand for, but number the values of codebook_4bit.cl: there are no zero points then
// A number u becomes the float 1 + u / 2^BITS by one shift and one bit operation: it is put at the top of a mantissa. A sum of
// those times a is brought back by the sum of a: sum a (u - z) = 2^BITS (sum a (1 + u / 2^BITS) - (1 + z / 2^BITS) sum a).
#ifndef BITS
#define BITS 4
#define ZEROS 0
#define HALF_SCALES 0
#endif
#ifndef TABLE
#define TABLE 0
#endif
#define PER (32 / BITS)
#define LEVELS (1 << BITS)
#define TOP (23 - BITS)
#define MANTISSA ((LEVELS - 1u) << TOP)
#if TABLE
#include "quantized/codebook_4bit.cl"
#define STEP 1
#define UNPACK LOOK_UP
#else
#define STEP LEVELS
#define UNPACK(n, w, j) \
    AS_N(n, float)((((w) << max(0, TOP - (j) * BITS)) >> max(0, (j) * BITS - TOP) & MANTISSA) | 0x3f800000u)
#endif
// LOAD_AT(t, n, p): VLOAD_AT for an n that is a macro.
#define AT_1(t) t
#define AT_2(t) t##2_at
#define AT_4(t) t##4_at
#define AT_8(t) t##8_at
#define AT_16(t) t##16_at
#if defined(__x86_64__) || defined(__aarch64__)
#define LOAD_AT(t, n, p) (*(const global CAT(AT_, n)(t) *)(p))
#else
#define LOAD_AT(t, n, p) VLOAD(n, 0, p)
#endif
#if HALF_SCALES
#define SCALE half
#define LOAD_SCALE(n, p, i) HLOAD(n, i, p)
#else
#define SCALE float
#define LOAD_SCALE(n, p, i) LOAD_AT(float, n, (p) + (i))
#endif
// MIDDLE(n, i): 1 + z / 2^BITS of n columns from element i of the zero points on.
#if TABLE
#define ZEROS_PARAM
#define MIDDLE(n, i) ((VEC_T(float, n))0)
#elif ZEROS == 0
#define ZEROS_PARAM
#define MIDDLE(n, i) ((VEC_T(float, n))(middle))
#elif ZEROS == 1
#define ZEROS_PARAM global const uchar *restrict zeros,
#define MIDDLE(n, i) (1.0f + CONVERT_N(n, float)(LOAD_AT(uchar, n, zeros + (i))) / LEVELS)
#else
#define ZEROS_PARAM global const float *restrict zeros,
#define MIDDLE(n, i) (1.0f + LOAD_AT(float, n, zeros + (i)) / LEVELS)
#endif
// ZERO(n, i): z alone, where there are several.
#if ZEROS == 0
#define ZERO(n, i) ((VEC_T(float, n))0)
#elif ZEROS == 1
#define ZERO(n, i) (CONVERT_N(n, float)(LOAD_AT(uchar, n, zeros + (i))))
#else
#define ZERO(n, i) (LOAD_AT(float, n, zeros + (i)))
#endif
