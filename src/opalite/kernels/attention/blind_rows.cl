// BLIND_NAN: a query all of whose scores are -inf gives NaN, not zeros.
// NAN_TO_ZERO: one with a NaN among its scores, so that the sum of its weights is one, gives zeros.
#ifndef BLIND_NAN
#define BLIND_NAN 0
#define NAN_TO_ZERO 0
#endif
#define IS_ZERO(total) (NAN_TO_ZERO && isnan(total))
// Where the operands of attention lie: element d of row s of head h of batch b of q is q[q_at + b*q_b + h*q_h + s*q_s + d],
// and likewise in k, v and y. PLACES are the kernel parameters for that; HEAD(q, b, h) is the first row of a head.
#define PLACE_OF(x) int x##_at, int x##_b, int x##_h, int x##_s
#define PLACES PLACE_OF(q), PLACE_OF(k), PLACE_OF(v), PLACE_OF(y)
#define HEAD(x, b, h) ((x) + (x##_at) + (size_t)(b) * (x##_b) + (size_t)(h) * (x##_h))
// The mask's elements: MASK_WIDE says that they are float32 where all else is half.
#ifdef MASK_WIDE
#define MASK_REAL float
#define LOAD_MASK(p, i) ((ACC)(p)[i])
#define LOADV_MASK(p, i) CONVERT_N(PACK, ACC)(VLOAD(PACK, i, p))
#else
#define MASK_REAL REAL
#define LOAD_MASK LOAD
#define LOADV_MASK LOADV
#endif
// Keys and values. BYTES: they are int8, 1: as they are, or 2: each row's scale stands behind it, as a float.
//   KV                     an element     WIDE_KV, WIDEV_KV(p, i)   one, or PACK of them, as ACC
//   SCALE_KV(row, n)       what a row of n elements is multiplied by
//   ALIGNED_KV             PACK of them begin at words of 32 bits, if PACK is 4 or more
#ifdef BYTES
#define KV char
#define WIDE_KV(p, i) ((ACC)(p)[i])
#define BYTES_1(p) (*(p))
#if defined(__x86_64__) || defined(__aarch64__) || !ALIGNED_KV
#define BYTES_2(p) VLOAD_AT(char, 2, p)
#define BYTES_4(p) VLOAD_AT(char, 4, p)
#define BYTES_8(p) VLOAD_AT(char, 8, p)
#define BYTES_16(p) VLOAD_AT(char, 16, p)
#else
#define BYTES_2(p) VLOAD_AT(char, 2, p)
#define BYTES_4(p) as_char4(*(const global uint *)(p))
#define BYTES_8(p) ((char8)(BYTES_4(p), BYTES_4((p) + 4)))
#define BYTES_16(p) ((char16)(BYTES_8(p), BYTES_8((p) + 8)))
#endif
#define WIDEV_KV(p, i) CONVERT_N(PACK, ACC)(CAT(BYTES_, PACK)((p) + (i)))
#else
#define BYTES 0
#define KV REAL
#define WIDE_KV LOAD
#define WIDEV_KV LOADV
#endif
#if BYTES == 2
#define SCALE_KV(row, n) (*(const global float *)((row) + (n)))
#else
#define SCALE_KV(row, n) ((ACC)1)
#endif
