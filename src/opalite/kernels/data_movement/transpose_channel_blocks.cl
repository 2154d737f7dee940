// Channels between blocks of PACK and the last axis, changing the storage type on the way:
//   blocks_to_rows   y[n, s, c] = x[n, c / PACK, s, c % PACK]
//   rows_to_blocks   the reverse; lanes past the last channel become zero
// A work-item moves one block at `each` positions s.
// Grid: blocks, ceil(spatial / each), N.
#include "include/cast_access.cl"

kernel void blocks_to_rows(global const SRC_T *x, global DST_T *y, int channels, int blocks, int spatial, int each,
                           int outer) {
    const int b = get_global_id(0), n = get_global_id(2), c = b * PACK;
    const int from = get_global_id(1) * each, to = min(from + each, spatial);
    if (b >= blocks || n >= outer) return;
    x += ((size_t)n * blocks + b) * spatial * PACK;
    y += (size_t)n * spatial * channels + c;
    if (c + PACK <= channels) {
        for (int s = from; s < to; ++s) STOREP(y, (size_t)s * channels, LOADP(x, (size_t)s * PACK));
    } else {
        for (int s = from; s < to; ++s)
            for (int k = 0; c + k < channels; ++k) STORE1(y, (size_t)s * channels + k, LOAD1(x, (size_t)s * PACK + k));
    }
}

kernel void rows_to_blocks(global const SRC_T *x, global DST_T *y, int channels, int blocks, int spatial, int each,
                           int outer) {
    const int b = get_global_id(0), n = get_global_id(2), c = b * PACK;
    const int from = get_global_id(1) * each, to = min(from + each, spatial);
    if (b >= blocks || n >= outer) return;
    x += (size_t)n * spatial * channels + c;
    y += ((size_t)n * blocks + b) * spatial * PACK;
    if (c + PACK <= channels) {
        for (int s = from; s < to; ++s) STOREP(y, (size_t)s * PACK, LOADP(x, (size_t)s * channels));
    } else {
        for (int s = from; s < to; ++s) {
            for (int k = 0; k < PACK; ++k) {
                const VALUE v = c + k < channels ? LOAD1(x, (size_t)s * channels + k) : (VALUE)0;
                STORE1(y, (size_t)s * PACK + k, v);
            }
        }
    }
}
