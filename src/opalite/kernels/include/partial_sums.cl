// LOAD_SUM(p): PACK sums that another launch left in global memory, at a multiple of PACK. Halves by pairs: some compilers fail on
// what is computed from four halves that were loaded as one.
#if defined(ACC_HALF) && PACK == 4
#define LOAD_SUM(p) ((half4)(*(global const half2 *)(p), *(global const half2 *)((p) + 2)))
#else
#define LOAD_SUM(p) (*(global const ACCV *)(p))
#endif
