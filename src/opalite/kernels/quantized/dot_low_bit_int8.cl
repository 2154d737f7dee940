// Sums of products of unsigned numbers of BITS bits (unpack_low_bit.cl) with signed bytes, four to a lane of 32 bits.
//   BYTES(w, j)      the j-th of FOURS vectors of four numbers a lane that are in words w: numbers j, j + FOURS, j + 2 FOURS, ...
//   IN_ORDER(c)      16 bytes of a row in the order in which those vectors meet them
//   DOT(s, u, a)     s + products of the bytes of u with those of the word a, which is the same for all lanes
//   BEGIN(z), TOTAL(s, z)   initial sums, and their final integers plus z; at most RUN words in between
// Needs DOTS: 2 vpdpbusd of AVX-512 VNNI or AVX-VNNI; 1 vpmaddubsw, for 4 bits at most, as pairs are summed in 16 bits;
// 0 plain C. LANES: of a vector of floats.
#include "quantized/unpack_low_bit.cl"
#include "include/dot4_bytes.cl"
#define FOURS (PER / 4)
#define BYTE_MASK (0x01010101u * (LEVELS - 1))
#define BYTES(w, j) ((w) >> (BITS * (j)) & BYTE_MASK)
#if BITS == 8
#define IN_ORDER(c) (c)
#elif BITS == 4
#define IN_ORDER(c) ((c).s024613578ace9bdf)
#else
#define IN_ORDER(c) ((c).s048c159d26ae37bf)
#endif
#define FLOATS VEC_T(float, PACK)
#define MOST_WORDS 32 // of a group of a row
#if DOTS == 1
typedef char bytes_of_lanes __attribute__((ext_vector_type(4 * PACK)));
typedef short SUMS __attribute__((ext_vector_type(2 * PACK)));
#define RUN 8
#if PACK == 16
#define MULTIPLY_PAIRS __builtin_ia32_pmaddubsw512
#define ADD_PAIRS __builtin_ia32_pmaddwd512
#else
#define MULTIPLY_PAIRS __builtin_ia32_pmaddubsw256
#define ADD_PAIRS __builtin_ia32_pmaddwd256
#endif
#define AS_BYTES(v) __builtin_astype(v, bytes_of_lanes)
#define BEGIN(z) ((SUMS)(short)0)
#define TOTAL(s, z) (ADD_PAIRS(s, (SUMS)(short)1) + (INTS)(z))
#define DOT(s, u, a) ((s) + MULTIPLY_PAIRS(AS_BYTES(u), AS_BYTES((WORDS)(a))))
#else
#define RUN MOST_WORDS
#define SUMS INTS
#define BEGIN(z) ((INTS)(z))
#define TOTAL(s, z) (s)
#define DOT(s, u, a) dot_fours(s, u, (WORDS)(a))
#endif
