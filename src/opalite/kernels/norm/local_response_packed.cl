// y = x * (bias + alpha * sum of squares of adjacent channels)^-beta on channel-packed tensors.
// Generated in front: window_sum(before, here, behind), which sums squares of a position's block and of the blocks next
// to it over each lane's window, and response_PACK, the power with exponent -beta.
//   MASK   the last block has lanes past `channels`
// A work-item takes `each` positions of `deep` blocks, block after block, so that a block that was its neighbour's
// neighbour is in the nearest cache. Grid: ceil(spatial / each), ceil(blocks / deep), batch.
#include "include/aligned_blocks.cl"

kernel void local_response_packed(global const REAL *restrict x, global REAL *restrict y, int batch, int blocks,
                                  int channels, int spatial, int each, int deep, ACC alpha, ACC bias EPILOGUE_PARAMS) {
    const int first = get_global_id(0) * each, last = min(first + each, spatial), n = get_global_id(2);
    const int top = get_global_id(1) * deep, end = min(top + deep, blocks);
    if (n >= batch) return;
    for (int block = top; block < end; ++block) {
        const size_t start = (size_t)(n * blocks + block) * spatial * PACK, step = (size_t)spatial * PACK;
        for (int s = first; s < last; ++s) {
            const size_t at = start + (size_t)s * PACK;
            ACCV before = (ACCV)0, behind = (ACCV)0;
            if (block > 0) before = LOADV(x, at - step);
            if (block + 1 < blocks) behind = LOADV(x, at + step);
            ACCV v = LOADV(x, at);
            const ACCV sum = window_sum(before * before, v * v, behind * behind);
            v *= CAT(response_, PACK)(sum * alpha + bias);
            v = EPILOGUE(v, n, block, s, blocks, spatial);
#if MASK
            v = MASK_LANES(v, channels - block * PACK);
#endif
            STOREV(y, at, v);
        }
    }
}
