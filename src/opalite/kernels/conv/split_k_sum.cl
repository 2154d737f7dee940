// The second launch of convolutions whose work-groups share the terms of a sum: adds up the sums of PARTS parts, by blocks.
#include "include/partial_sums.cl"

// parts: [PARTS, blocks, positions, PACK]. Grid: positions, blocks of all groups.
kernel void conv_parts(global const ACC *restrict parts, BIAS_PARAM global REAL *restrict y, int positions, int blocks, int m,
                       int spatial EPILOGUE_PARAMS) {
    const int p = get_global_id(0), block = get_global_id(1), n = p / spatial, s = p - n * spatial;
    if (p >= positions || block >= blocks) return;
    ACCV sum = (ACCV)0;
    _Pragma("unroll")
    for (int k = 0; k < PARTS; ++k) sum += LOAD_SUM(parts + (((size_t)k * blocks + block) * positions + p) * PACK);
    const ACCV out = finish(sum, n, block, s, blocks, spatial, BIAS_ARG m EPILOGUE_ARGS);
    STOREV(y, (((size_t)n * blocks + block) * spatial + s) * PACK, out);
}
