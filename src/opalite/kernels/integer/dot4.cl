// Sums of products of 8-bit integers, four at a time. A word (uint) holds four neighbours, the first in its low byte.
//   DOT4(a, b, c)     c + sum of the products of the bytes of a, signed if A_SIGNED, with those of b, signed if B_SIGNED
//   TURNS             turns of an innermost loop to unroll, so that their loads are in flight together
//   DOT4_SUM_A(a, c)  c + sum of the bytes of a;   DOT4_SUM_B(b, c)  the same of b
// Needs DOT: 4 cl_qcom_dot_product8, 3 cl_arm_integer_dot_product, 2 inline PTX's dp4a, 1 the functions of
// cl_khr_integer_dot_product, 0 plain C.
#ifndef DOT
#define DOT 0
#endif
#ifndef A_SIGNED
#define A_SIGNED 0
#endif
#ifndef B_SIGNED
#define B_SIGNED 1
#endif
#if defined(__x86_64__) || defined(__aarch64__)
#define TURNS 1
#else
#define TURNS 4
#endif
#define ONES 0x01010101u
// Bytes with the highest bit flipped: an unsigned one becomes signed and 128 less. EIGHTH holds four times 128, or -128 if signed.
#define EIGHTH 0x80808080u
#define FLIPPED(a) ((a) ^ EIGHTH)
#if DOT == 4
#pragma OPENCL EXTENSION cl_qcom_dot_product8 : enable
// The instruction multiplies signed by unsigned bytes.
static inline int dot4_su(uint a, uint b, int c) { return qcom_dot8_acc(a, b, c); }
static inline int dot4_us(uint a, uint b, int c) { return dot4_su(b, a, c); }
static inline int dot4_ss(uint a, uint b, int c) { return dot4_su(a, FLIPPED(b), c - dot4_su(a, EIGHTH, 0)); }
static inline int dot4_uu(uint a, uint b, int c) { return dot4_su(FLIPPED(a), b, c + 128 * dot4_su(ONES, b, 0)); }
#elif DOT == 3
// The instruction multiplies bytes of one sign.
#ifdef cl_arm_integer_dot_product_accumulate_int8
#pragma OPENCL EXTENSION cl_arm_integer_dot_product_accumulate_int8 : enable
#define ARM_DOT(a, b, c) arm_dot_acc(a, b, c)
#else
#pragma OPENCL EXTENSION cl_arm_integer_dot_product_int8 : enable
#define ARM_DOT(a, b, c) ((c) + arm_dot(a, b))
#endif
static inline int dot4_ss(uint a, uint b, int c) { return ARM_DOT(as_char4(a), as_char4(b), c); }
static inline int dot4_uu(uint a, uint b, int c) { return (int)ARM_DOT(as_uchar4(a), as_uchar4(b), (uint)c); }
static inline int dot4_su(uint a, uint b, int c) { return dot4_ss(a, FLIPPED(b), c - dot4_ss(a, EIGHTH, 0)); }
static inline int dot4_us(uint a, uint b, int c) { return dot4_su(b, a, c); }
#elif DOT == 2
#define DEFINE_DOT4(name, types) \
    static inline int name(uint a, uint b, int c) { \
        int sum; \
        asm("dp4a." types " %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c)); \
        return sum; \
    }
DEFINE_DOT4(dot4_ss, "s32.s32")
DEFINE_DOT4(dot4_su, "s32.u32")
DEFINE_DOT4(dot4_us, "u32.s32")
DEFINE_DOT4(dot4_uu, "u32.u32")
#elif DOT == 1
#pragma OPENCL EXTENSION cl_khr_integer_dot_product : enable
static inline int dot4_ss(uint a, uint b, int c) { return c + dot_4x8packed_ss_int(a, b); }
static inline int dot4_su(uint a, uint b, int c) { return c + dot_4x8packed_su_int(a, b); }
static inline int dot4_us(uint a, uint b, int c) { return c + dot_4x8packed_us_int(a, b); }
static inline int dot4_uu(uint a, uint b, int c) { return c + (int)dot_4x8packed_uu_uint(a, b); }
#else
#define DEFINE_DOT4(name, A, B) \
    static inline int name(uint a, uint b, int c) { \
        const int4 p = convert_int4(as_##A(a)) * convert_int4(as_##B(b)); \
        return c + p.s0 + p.s1 + p.s2 + p.s3; \
    }
DEFINE_DOT4(dot4_ss, char4, char4)
DEFINE_DOT4(dot4_su, char4, uchar4)
DEFINE_DOT4(dot4_us, uchar4, char4)
DEFINE_DOT4(dot4_uu, uchar4, uchar4)
#endif
#if A_SIGNED && B_SIGNED
#define DOT4 dot4_ss
#elif A_SIGNED
#define DOT4 dot4_su
#elif B_SIGNED
#define DOT4 dot4_us
#else
#define DOT4 dot4_uu
#endif
#if A_SIGNED
#define DOT4_SUM_A(a, c) dot4_su(a, ONES, c)
#else
#define DOT4_SUM_A(a, c) dot4_uu(a, ONES, c)
#endif
#if B_SIGNED
#define DOT4_SUM_B(b, c) dot4_su(b, ONES, c)
#else
#define DOT4_SUM_B(b, c) dot4_uu(b, ONES, c)
#endif
// Type of an element of either side.
#if A_SIGNED
#define A_BYTE char
#else
#define A_BYTE uchar
#endif
#if B_SIGNED
#define B_BYTE char
#else
#define B_BYTE uchar
#endif
