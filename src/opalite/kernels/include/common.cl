// Types and memory access shared by every kernel. Storage and arithmetic precision are independent:
//   STORAGE  element type of float tensors in memory: 0 float, 1 half, 2 double, 3 int, 4 long, 5 uint, 6 ulong, 7 bfloat16,
//            8 char, 9 uchar, 10 short, 11 ushort
//   REAL     storage element     ACC   arithmetic element (float for half and bfloat16; half with ACC_HALF;
//                                   int for the narrower integers, which wrap when stored)
//   PACK     vector width of ACCV and of packed channel blocks: 1, 2, 4, 8 or 16
//   LOAD(p, i)  STORE(p, i, v)    one element at index i
//   LOADV(p, i) STOREV(p, i, v)   PACK elements starting at element index i
#ifndef STORAGE
#define STORAGE 0
#endif
#ifndef PACK
#define PACK 4
#endif
#if STORAGE == 2
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
#if defined(ACC_HALF)
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#endif

#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
#define VEC_1(t) t
#define VEC_2(t) t##2
#define VEC_4(t) t##4
#define VEC_8(t) t##8
#define VEC_16(t) t##16
#define VEC_T_(t, n) CAT(VEC_, n)(t)
#define VEC_T(t, n) VEC_T_(t, n)

#define VLOAD_1(i, p) (*((p) + (i)))
#define VLOAD_2(i, p) vload2(0, (p) + (i))
#define VLOAD_4(i, p) vload4(0, (p) + (i))
#define VLOAD_8(i, p) vload8(0, (p) + (i))
#define VLOAD_16(i, p) vload16(0, (p) + (i))
#define VSTORE_1(v, i, p) (*((p) + (i)) = (v))
#define VSTORE_2(v, i, p) vstore2(v, 0, (p) + (i))
#define VSTORE_4(v, i, p) vstore4(v, 0, (p) + (i))
#define VSTORE_8(v, i, p) vstore8(v, 0, (p) + (i))
#define VSTORE_16(v, i, p) vstore16(v, 0, (p) + (i))
#define HLOAD_1(i, p) vload_half(i, p)
#define HLOAD_2(i, p) vload_half2(0, (p) + (i))
#define HLOAD_4(i, p) vload_half4(0, (p) + (i))
#define HLOAD_8(i, p) vload_half8(0, (p) + (i))
#define HLOAD_16(i, p) vload_half16(0, (p) + (i))
#define HSTORE_1(v, i, p) vstore_half(v, i, p)
#define HSTORE_2(v, i, p) vstore_half2(v, 0, (p) + (i))
#define HSTORE_4(v, i, p) vstore_half4(v, 0, (p) + (i))
#define HSTORE_8(v, i, p) vstore_half8(v, 0, (p) + (i))
#define HSTORE_16(v, i, p) vstore_half16(v, 0, (p) + (i))
#define VLOAD(n, i, p) CAT(VLOAD_, n)(i, p)
#define VSTORE(n, v, i, p) CAT(VSTORE_, n)(v, i, p)
#define HLOAD(n, i, p) CAT(HLOAD_, n)(i, p)
#define HSTORE(n, v, i, p) CAT(HSTORE_, n)(v, i, p)

// VLOAD_AT(t, n, p), VSTORE_AT(t, n, v, p): n elements of a type t of up to four bytes at an address aligned to one element only in global
// memory. CPUs get under-aligned types: PoCL splits vload and vstore of narrow elements into lanes, and those of four bytes
// into pairs (vload16: eight loads, seven shuffles), which its compiler joins again at great length.
#if defined(__x86_64__) || defined(__aarch64__)
#define UNALIGNED(t, size) \
    typedef t##2 t##2_at __attribute__((aligned(size))); \
    typedef t##4 t##4_at __attribute__((aligned(size))); \
    typedef t##8 t##8_at __attribute__((aligned(size))); \
    typedef t##16 t##16_at __attribute__((aligned(size)));
UNALIGNED(char, 1)
UNALIGNED(uchar, 1)
UNALIGNED(short, 2)
UNALIGNED(ushort, 2)
UNALIGNED(int, 4)
UNALIGNED(uint, 4)
UNALIGNED(float, 4)
#define VLOAD_AT(t, n, p) (*(const global t##n##_at *)(p))
#define VSTORE_AT(t, n, v, p) (*(global t##n##_at *)(p) = (v))
#if defined(__clang_major__) && __clang_major__ > 14
// PoCL 5 and 6 assume that the address of vload_half and vstore_half is aligned to the whole vector.
#define HALVES_IN(n, space) \
    static inline float##n __attribute__((overloadable)) hload_##n(space const half *p) { \
        const ushort##n raw = *(space const ushort##n##_at *)p; \
        return vload_half##n(0, (const half *)&raw); \
    } \
    static inline void __attribute__((overloadable)) hstore_##n(float##n v, space half *p) { \
        ushort##n raw; \
        vstore_half##n(v, 0, (half *)&raw); \
        *(space ushort##n##_at *)p = raw; \
    }
#ifdef LOCAL_IS_PRIVATE // in megakernels (plan/megakernel_source.py)
#define HALVES(n) HALVES_IN(n, global) HALVES_IN(n, private)
#else
#define HALVES(n) HALVES_IN(n, global) HALVES_IN(n, local) HALVES_IN(n, private)
#endif
HALVES(2)
HALVES(4)
HALVES(8)
HALVES(16)
#undef HLOAD_2
#undef HLOAD_4
#undef HLOAD_8
#undef HLOAD_16
#undef HSTORE_2
#undef HSTORE_4
#undef HSTORE_8
#undef HSTORE_16
#define HLOAD_2(i, p) hload_2((p) + (i))
#define HLOAD_4(i, p) hload_4((p) + (i))
#define HLOAD_8(i, p) hload_8((p) + (i))
#define HLOAD_16(i, p) hload_16((p) + (i))
#define HSTORE_2(v, i, p) hstore_2(v, (p) + (i))
#define HSTORE_4(v, i, p) hstore_4(v, (p) + (i))
#define HSTORE_8(v, i, p) hstore_8(v, (p) + (i))
#define HSTORE_16(v, i, p) hstore_16(v, (p) + (i))
#endif
#else
#define VLOAD_AT(t, n, p) VLOAD(n, 0, p)
#define VSTORE_AT(t, n, v, p) VSTORE(n, v, 0, p)
#endif

#define CONVERT_1(t) (t)
#define CONVERT_2(t) convert_##t##2
#define CONVERT_4(t) convert_##t##4
#define CONVERT_8(t) convert_##t##8
#define CONVERT_16(t) convert_##t##16
#define CONVERT_N(n, t) CAT(CONVERT_, n)(t)
#define AS_1(t) as_##t
#define AS_2(t) as_##t##2
#define AS_4(t) as_##t##4
#define AS_8(t) as_##t##8
#define AS_16(t) as_##t##16
#define AS_N(n, t) CAT(AS_, n)(t)

// bfloat16 is stored in ushort; rounding to nearest even, NaN kept quiet.
#define BF16_TO_F32(n, v) AS_N(n, float)(CONVERT_N(n, uint)(v) << 16)
static inline ushort bf16_round(float v) {
    const uint b = as_uint(v);
    return isnan(v) ? (ushort)((b >> 16) | 0x40) : (ushort)((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
}

// Four adjacent halves that begin at a multiple of four, moved at once: some compilers split vload_half4 into four accesses,
// and split vectors that are only used in parts.
static inline float4 load_half4(global const half *p) {
    const ulong raw = *(global const ulong *)p;
    const ushort lanes[4] = {(ushort)raw, (ushort)(raw >> 16), (ushort)(raw >> 32), (ushort)(raw >> 48)};
    return vload_half4(0, (const half *)lanes);
}
static inline void store_half4(float4 v, global half *p) {
    ushort4 raw;
    vstore_half4(v, 0, (half *)&raw);
    *(global ushort4 *)p = raw;
}

#if STORAGE == 0
#define REAL float
#define ACC float
#elif STORAGE == 1
#define REAL half
#if defined(ACC_HALF)
#define ACC half
#else
#define ACC float
#define HALF_AS_FLOAT
#endif
#elif STORAGE == 2
#define REAL double
#define ACC double
#elif STORAGE == 3
#define REAL int
#define ACC int
#elif STORAGE == 4
#define REAL long
#define ACC long
#elif STORAGE == 5
#define REAL uint
#define ACC uint
#elif STORAGE == 6
#define REAL ulong
#define ACC ulong
#elif STORAGE == 7
#define REAL ushort
#define ACC float
#elif STORAGE == 8
#define REAL char
#define ACC int
#elif STORAGE == 9
#define REAL uchar
#define ACC int
#elif STORAGE == 10
#define REAL short
#define ACC int
#elif STORAGE == 11
#define REAL ushort
#define ACC int
#endif
#define ACCV VEC_T(ACC, PACK)

// Largest and smallest value of ACC, for maxima and minima.
#if STORAGE == 2 || (STORAGE <= 1) || STORAGE == 7
#define ACC_LOWEST (-(ACC)INFINITY)
#define ACC_HIGHEST ((ACC)INFINITY)
#define ACC_IS_FLOAT 1
#elif STORAGE == 3 || STORAGE >= 8
#define ACC_LOWEST INT_MIN
#define ACC_HIGHEST INT_MAX
#elif STORAGE == 4
#define ACC_LOWEST LONG_MIN
#define ACC_HIGHEST LONG_MAX
#elif STORAGE == 5
#define ACC_LOWEST 0u
#define ACC_HIGHEST UINT_MAX
#elif STORAGE == 6
#define ACC_LOWEST 0ul
#define ACC_HIGHEST ULONG_MAX
#endif

// LOADN(n, p, i): n elements at element index i, as ACC.  STOREN(n, p, i, v): the reverse.
#if defined(HALF_AS_FLOAT)
#define LOADN(n, p, i) HLOAD(n, i, p)
#define STOREN(n, p, i, v) HSTORE(n, v, i, p)
#elif STORAGE == 7
#define LOADN(n, p, i) BF16_TO_F32(n, VLOAD(n, i, p))
static inline void bf16_store16(global ushort *p, const float *v, int n) {
    for (int k = 0; k < n; ++k) p[k] = bf16_round(v[k]);
}
#define STOREN(n, p, i, v) do { VEC_T(float, n) bf_v_ = (v); bf16_store16((p) + (i), (const float *)&bf_v_, n); } while (0)
#elif STORAGE >= 8
#define LOADN(n, p, i) CONVERT_N(n, int)(VLOAD(n, i, p))
#define STOREN(n, p, i, v) VSTORE(n, CONVERT_N(n, REAL)(v), i, p)
#else
#define LOADN(n, p, i) VLOAD(n, i, p)
#define STOREN(n, p, i, v) VSTORE(n, v, i, p)
#endif
#define LOAD(p, i) LOADN(1, p, i)
#define STORE(p, i, v) STOREN(1, p, i, v)
#if STORAGE == 0 && PACK > 1 && (defined(__x86_64__) || defined(__aarch64__))
// As VLOAD_AT, in any memory.
#define FLOATV_AT CAT(VEC_T(float, PACK), _at)
#define ACCESS(space) \
    static inline ACCV __attribute__((overloadable)) load_at(space const float *p) { return *(space const FLOATV_AT *)p; } \
    static inline void __attribute__((overloadable)) store_at(space float *p, ACCV v) { *(space FLOATV_AT *)p = v; }
ACCESS(global)
#ifndef LOCAL_IS_PRIVATE // in megakernels (plan/megakernel_source.py)
ACCESS(local)
#endif
ACCESS(private)
#define LOADV(p, i) load_at((p) + (i))
#define STOREV(p, i, v) store_at((p) + (i), v)
#else
#define LOADV(p, i) LOADN(PACK, p, i)
#define STOREV(p, i, v) STOREN(PACK, p, i, v)
#endif

// Lane numbers 0..PACK-1, to mask the channels of the last block.
#if PACK == 16
#define LANES ((int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))
#elif PACK == 8
#define LANES ((int8)(0, 1, 2, 3, 4, 5, 6, 7))
#elif PACK == 4
#define LANES ((int4)(0, 1, 2, 3))
#elif PACK == 2
#define LANES ((int2)(0, 1))
#else
#define LANES 0
#endif
// v with the lanes from `valid` on set to zero. Only for 32-bit ACC: packed layouts hold float or half.
#if PACK == 1
#define MASK_LANES(v, valid) (v)
#elif defined(ACC_HALF)
#define MASK_LANES(v, valid) select((ACCV)0, v, CONVERT_N(PACK, short)(LANES < (int)(valid)))
#elif STORAGE == 2 || STORAGE == 4 || STORAGE == 6
#define MASK_LANES(v, valid) select((ACCV)0, v, CONVERT_N(PACK, long)(LANES < (int)(valid)))
#else
#define MASK_LANES(v, valid) select((ACCV)0, v, LANES < (int)(valid))
#endif

// The fused elementwise chain of the node, generated in front of this file; by default nothing.
//   EPILOGUE_PARAMS            kernel parameters, each with a leading comma
//   EPILOGUE_ARGS              the names of those parameters, each with a leading comma, to hand them on to a function
//   EPILOGUE(v, ...)           the chain applied to ACCV v;   EPILOGUE1(v, ...)  to one ACC
// Coordinates of packed kernels: (v, n, c, s, C, S): batch, channel block, spatial index; number of blocks, spatial size.
// Coordinates of row kernels: (v, r, c, R, C): row and column of the output as a matrix [rows, columns].
#ifndef EPILOGUE_PARAMS
#define EPILOGUE_PARAMS
#define EPILOGUE_ARGS
#define EPILOGUE(v, ...) (v)
#define EPILOGUE1(v, ...) (v)
#endif
