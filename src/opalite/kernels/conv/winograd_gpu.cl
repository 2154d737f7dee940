// conv/winograd.cl for GPUs, whose compilers split vload4 into four loads, because it guarantees only element alignment.
// Needs PACK = 4.
#include "include/aligned_blocks.cl"
#undef VLOAD_4
#undef VSTORE_4
#define VLOAD_4(i, p) (*(global const float4 *)((p) + (i)))
#define VSTORE_4(v, i, p) (*(global float4 *)((p) + (i)) = (v))
#include "conv/winograd.cl"
