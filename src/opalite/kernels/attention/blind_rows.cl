// BLIND_NAN: a query with only scores of -inf gives NaN instead of zeros.
// NAN_TO_ZERO: a query with a NaN score (whose weights sum to NaN) gives zeros.
#ifndef BLIND_NAN
#define BLIND_NAN 0
#define NAN_TO_ZERO 0
#endif
#define IS_ZERO(total) (NAN_TO_ZERO && isnan(total))
// Strides of the operands of attention: element d of row s of head h of batch b of q is q[q_at + b*q_b + h*q_h + s*q_s + d],
// and likewise in k, v and y. PLACES declares these as kernel parameters. HEAD(q, b, h) is the first row of a head.
#define PLACE_OF(x) int x##_at, int x##_b, int x##_h, int x##_s
#define PLACES PLACE_OF(q), PLACE_OF(k), PLACE_OF(v), PLACE_OF(y)
#define HEAD(x, b, h) ((x) + (x##_at) + (size_t)(b) * (x##_b) + (size_t)(h) * (x##_h))
// Element type of the mask. MASK_WIDE: float32, while all else is half.
#ifdef MASK_WIDE
#define MASK_REAL float
#define LOAD_MASK(p, i) ((ACC)(p)[i])
#define LOADV_MASK(p, i) CONVERT_N(PACK, ACC)(VLOAD(PACK, i, p))
#else
#define MASK_REAL REAL
#define LOAD_MASK LOAD
#define LOADV_MASK LOADV
#endif
// Keys and values. BYTES: int8 without (1) or with (2) a float scale after each row.
//   KV                     an element     WIDE_KV, WIDEV_KV(p, i)   one, or PACK of them, as ACC
//   SCALE_KV(row, n)       scale of a row of n elements
//   ALIGNED_KV             vectors of PACK (4 or more) are aligned to 32-bit words
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
