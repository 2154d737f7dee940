// Channels between blocks of PACK and the last axis:
//   blocks_to_rows   y[n, s, c] = x[n, c / PACK, s, c % PACK]
//   rows_to_blocks   the reverse; lanes past the last channel become zero
// A work-item moves one block at `each` positions s. T is an unsigned type of the element's size.
// Grid: blocks, ceil(spatial / each), N.
#ifndef T
#define T uint
#define LOAD_BLOCK(p) vload4(0, p)
#define STORE_BLOCK(v, p) vstore4(v, 0, p)
#endif

kernel void blocks_to_rows(global const T *x, global T *y, int channels, int blocks, int spatial, int each, int outer) {
    const int b = get_global_id(0), n = get_global_id(2), c = b * PACK;
    const int from = get_global_id(1) * each, to = min(from + each, spatial);
    if (b >= blocks || n >= outer) return;
    x += ((size_t)n * blocks + b) * spatial * PACK;
    y += (size_t)n * spatial * channels + c;
    if (c + PACK <= channels) {
        for (int s = from; s < to; ++s) STORE_BLOCK(LOAD_BLOCK(x + (size_t)s * PACK), y + (size_t)s * channels);
    } else {
        for (int s = from; s < to; ++s)
            for (int k = 0; c + k < channels; ++k) y[(size_t)s * channels + k] = x[(size_t)s * PACK + k];
    }
}

kernel void rows_to_blocks(global const T *x, global T *y, int channels, int blocks, int spatial, int each, int outer) {
    const int b = get_global_id(0), n = get_global_id(2), c = b * PACK;
    const int from = get_global_id(1) * each, to = min(from + each, spatial);
    if (b >= blocks || n >= outer) return;
    x += (size_t)n * spatial * channels + c;
    y += ((size_t)n * blocks + b) * spatial * PACK;
    if (c + PACK <= channels) {
        for (int s = from; s < to; ++s) STORE_BLOCK(LOAD_BLOCK(x + (size_t)s * channels), y + (size_t)s * PACK);
    } else {
        for (int s = from; s < to; ++s)
            for (int k = 0; k < PACK; ++k) y[(size_t)s * PACK + k] = c + k < channels ? x[(size_t)s * channels + k] : (T)0;
    }
}
