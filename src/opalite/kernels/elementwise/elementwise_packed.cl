// y = expr(x, ...) on channel-packed tensors: the expression is the node's epilogue, applied to a loaded x.
// Needs PACK; TAIL says that the last block has lanes past C.  blocks is ceil(C / PACK), rows is N * blocks and spatial the
// number of positions of a channel.  A work-item takes `each_rows` rows of `each` positions.
#include "include/aligned_blocks.cl"
#ifndef TAIL
#define TAIL 1
#endif
// X_REAL: type of x where it may be another than y's, and of what the expression takes; X_HALVES: x holds halves of those.
#if X_HALVES
#define LOAD_X(p, i) HLOAD(PACK, 0, (p) + (i))
#elif defined(X_REAL)
typedef VEC_T(X_REAL, PACK) __attribute__((aligned(sizeof(X_REAL)))) block_of_x;
#define LOAD_X(p, i) (*(global const block_of_x *)((p) + (i)))
#else
#define X_REAL REAL
#define LOAD_X LOADV
#endif

kernel void elementwise_packed(global const X_REAL *x, global REAL *y, int channels, int blocks, int spatial, int rows,
                               int each, int each_rows EPILOGUE_PARAMS) {
    const int first = get_global_id(0) * each, last = min(first + each, spatial);
    const int row0 = get_global_id(1) * each_rows, row1 = min(row0 + each_rows, rows);
    for (int row = row0; row < row1; ++row) {
        const int n = row / blocks;
        const int cb = row - n * blocks;
        const size_t start = (size_t)row * spatial * PACK;
        for (int s = first; s < last; ++s) {
            ACCV v = EPILOGUE(LOAD_X(x, start + (size_t)s * PACK), n, cb, s, blocks, spatial);
#if TAIL
            v = MASK_LANES(v, channels - cb * PACK);
#endif
            STOREV(y, start + (size_t)s * PACK, v);
        }
    }
}
