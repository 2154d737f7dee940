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
