// For kernels on channel-packed tensors, whose vectors lie at multiples of PACK elements: LOADV and STOREV as one access of
// a whole RGBA block. vload4 promises the alignment of one element only, which some compilers take as four loads.
#if PACK == 4 && (STORAGE == 0 || defined(HALF_AS_FLOAT))
#undef LOADV
#undef STOREV
#if STORAGE == 0
#define LOADV(p, i) (*(global const float4 *)((p) + (i)))
#define STOREV(p, i, v) (*(global float4 *)((p) + (i)) = (v))
#else
#define LOADV(p, i) load_half4((p) + (i))
#define STOREV(p, i, v) store_half4(v, (p) + (i))
#endif
#endif
