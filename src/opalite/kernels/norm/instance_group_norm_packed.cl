// Normalisation by channel or by group of channels on channel-packed tensors, in three launches:
//   moments   for each block and each of its `parts`, runs of `span` positions: mean and sum of squared differences
//             from it, by lane; WG work-items share a part (reduce/work_group_rows.cl)
//   combine   for each channel, the factor and offset with which y = x * factor + offset
//   apply     that, then the epilogue (packed)
// spatial: positions of a channel; blocks: ceil(channels / PACK); depth: channels of a group.
// HAS_SCALE, HAS_BIAS: one element for each channel.  MASK: the last block has lanes past `channels`.
#define ADD2(a, b) ((a) + (b))

#if defined(MOMENTS)
// Grid: WG, batch * blocks * parts.  moments: [batch * blocks, parts, 2, PACK].
kernel ROW_GROUP void normalize_moments(global const REAL *x, global ACC *moments, int parts, int span, int spatial) {
    LOCAL_PARTS(ACCV, part);
    const int id = get_global_id(1), nb = id / parts, begin = (id - nb * parts) * span;
    const int count = min(span, spatial - begin), first = get_local_id(0);
    x += ((size_t)nb * spatial + begin) * PACK;
    ACCV mean = (ACCV)0;
    for (int i = first; i < count; i += WG) mean += LOADV(x, i * PACK);
    FOLD_ROW(ADD2, mean, part);
    mean /= (ACC)count;
    ACCV squares = (ACCV)0;
    for (int i = first; i < count; i += WG) {
        const ACCV d = LOADV(x, i * PACK) - mean;
        squares += d * d;
    }
    FOLD_ROW(ADD2, squares, part);
    if (first == 0) {
        VSTORE(PACK, mean, (size_t)id * 2 * PACK, moments);
        VSTORE(PACK, squares, (size_t)id * 2 * PACK + PACK, moments);
    }
}

#elif defined(COMBINE)
#include "include/optional_scale_bias.cl"
// Element of the moments of channel `c` and part `p` of image n; the squares lie PACK after the mean.
#define MOMENT(c, p) (((((size_t)n * blocks + (c) / PACK) * parts + (p)) * 2) * PACK + (c) % PACK)

// Parts of unequal size joined as Chan, Golub and LeVeque do (1979).
// Grid: batch * blocks * PACK.  table: [batch * blocks, 2, PACK].
kernel void normalize_combine(global const ACC *moments, SCALE_PARAM BIAS_PARAM global ACC *table, int total,
                              int channels, int blocks, int depth, int parts, int span, int spatial, ACC epsilon) {
    const int id = get_global_id(0);
    if (id >= total) return;
    const int n = id / (blocks * PACK), channel = id - n * (blocks * PACK);
    ACC factor = 0, offset = 0;
    if (channel < channels) {
        const int first = channel / depth * depth;
        ACC mean = 0;
        for (int c = first; c < first + depth; ++c)
            for (int p = 0; p < parts; ++p) mean += moments[MOMENT(c, p)] * min(span, spatial - p * span);
        mean /= (ACC)depth * spatial;
        ACC squares = 0;
        for (int c = first; c < first + depth; ++c) {
            for (int p = 0; p < parts; ++p) {
                const size_t at = MOMENT(c, p);
                const ACC d = moments[at] - mean;
                squares += moments[at + PACK] + d * d * min(span, spatial - p * span);
            }
        }
        factor = (ACC)1 / sqrt(squares / ((ACC)depth * spatial) + epsilon);
#if HAS_SCALE
        factor *= LOAD(scale, channel);
#endif
        offset = -mean * factor;
#if HAS_BIAS
        offset += LOAD(bias, channel);
#endif
    }
    const size_t at = (size_t)(id / PACK) * 2 * PACK + id % PACK;
    table[at] = factor;
    table[at + PACK] = offset;
}

#else
kernel void normalize_apply(global const REAL *x, global const ACC *table, global REAL *y, int channels, int blocks,
                            int spatial, int total EPILOGUE_PARAMS) {
    const int first = get_global_id(0) * ITEMS, last = min(first + ITEMS, total);
    for (int i = first; i < last; ++i) {
        const int nb = i / spatial, s = i - nb * spatial, n = nb / blocks, cb = nb - n * blocks;
        const size_t at = (size_t)nb * 2 * PACK;
        ACCV v = fma(LOADV(x, (size_t)i * PACK), VLOAD(PACK, at, table), VLOAD(PACK, at + PACK, table));
        v = EPILOGUE(v, n, cb, s, blocks, spatial);
#if MASK
        if (cb == blocks - 1) v = MASK_LANES(v, channels - cb * PACK);
#endif
        STOREV(y, (size_t)i * PACK, v);
    }
}
#endif
