// For kernels on channel-packed tensors, whose vectors start at multiples of PACK elements: LOADV and STOREV as one access of
// a whole RGBA block. vload4 guarantees only element alignment, so that some compilers emit four loads.
#if PACK == 4 && STORAGE <= 1
#undef LOADV
#undef STOREV
#if STORAGE == 1 && !defined(HALF_AS_FLOAT)
// In pairs: some compilers miscompile computations on four halves loaded at once.
static inline half4 load_halves(global const half *p) {
    return (half4)(*(global const half2 *)p, *(global const half2 *)(p + 2));
}
#define LOADV(p, i) load_halves((p) + (i))
#define STOREV(p, i, v) (*(global half4 *)((p) + (i)) = (v))
#elif STORAGE == 0
#define LOADV(p, i) (*(global const float4 *)((p) + (i)))
#define STOREV(p, i, v) (*(global float4 *)((p) + (i)) = (v))
#else
#define LOADV(p, i) load_half4((p) + (i))
#define STOREV(p, i, v) store_half4(v, (p) + (i))
#endif
#endif
#if (PACK == 4 && STORAGE == 3) || (PACK >= 4 && STORAGE >= 8)
#undef LOADV
#undef STOREV
#define LOADV(p, i) CONVERT_N(PACK, ACC)(*(global const VEC_T(REAL, PACK) *)((p) + (i)))
#define STOREV(p, i, v) (*(global VEC_T(REAL, PACK) *)((p) + (i)) = CONVERT_N(PACK, REAL)(v))
#endif
