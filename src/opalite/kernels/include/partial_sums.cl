// LOAD_SUM(p): PACK sums that another launch left in global memory, at a multiple of PACK. Halves in pairs: some compilers miscompile
// computations on four halves loaded at once.
#if defined(ACC_HALF) && PACK == 4
#define LOAD_SUM(p) ((half4)(*(global const half2 *)(p), *(global const half2 *)((p) + 2)))
#else
#define LOAD_SUM(p) (*(global const ACCV *)(p))
#endif
