// dot_fours(s, u, a): s + the sum of four products of unsigned bytes of u with signed bytes of a, in each lane of 32 bits. It
// wraps around. Needs DOTS: 2 vpdpbusd of AVX-512 VNNI or AVX-VNNI, else plain C.
#ifndef DOTS
#define DOTS 0
#endif
#define INTS VEC_T(int, PACK)
#define WORDS VEC_T(uint, PACK)
typedef INTS __attribute__((aligned(4))) ints_at; // at an address aligned to one element only
typedef WORDS __attribute__((aligned(4))) words_at;
#if DOTS == 2
// In assembly: PoCL compiles for the processor that its library was built for, which may lack this instruction.
#if PACK == 16
#define FOURS_IN "vpdpbusd"
#define FOURS_OF "v"
#else
#define FOURS_IN "%{vex%} vpdpbusd" // constraint for the first 16 registers
#define FOURS_OF "x"
#endif
static inline INTS dot_fours(INTS s, WORDS u, WORDS a) {
    __asm__(FOURS_IN " %2, %1, %0" : "+" FOURS_OF(s) : FOURS_OF(u), FOURS_OF(a));
    return s;
}
#else
#define FOURS_TERM(u, a, j) (AS_N(PACK, int)((u) >> (8 * (j)) & 255u) * (AS_N(PACK, int)((a) << (24 - 8 * (j))) >> 24))
static inline INTS dot_fours(INTS s, WORDS u, WORDS a) {
    return s + FOURS_TERM(u, a, 0) + FOURS_TERM(u, a, 1) + FOURS_TERM(u, a, 2) + FOURS_TERM(u, a, 3);
}
#endif
