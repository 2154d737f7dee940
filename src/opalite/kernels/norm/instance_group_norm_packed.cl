// Normalisation by channel or by group of channels on channel-packed tensors, in three launches:
//   moments   for each block and each of its `parts`, runs of `span` positions: mean and sum of squared differences
//             from it, by lane; WG work-items share a part (reduce/work_group_rows.cl). One reading: sums of differences
//             from an element of the part, which is close to the mean as they are, so that little cancels
//   combine   for each channel, the factor and offset with which y = x * factor + offset; a work-group for each group
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
    const ACCV near = LOADV(x, count / 2 * PACK);
    ACCV sum = (ACCV)0, squares = (ACCV)0;
    #pragma unroll 4
    for (int i = first; i < count; i += WG) {
        const ACCV d = LOADV(x, i * PACK) - near;
        sum += d;
        squares += d * d;
    }
    FOLD_ROW(ADD2, sum, part);
    FOLD_ROW(ADD2, squares, part);
    if (first == 0) {
        const ACCV mean = sum / (ACC)count;
        VSTORE(PACK, near + mean, (size_t)id * 2 * PACK, moments);
        VSTORE(PACK, fmax(squares - sum * mean, (ACCV)0), (size_t)id * 2 * PACK + PACK, moments);
    }
}

#elif defined(COMBINE)
#include "include/optional_scale_bias.cl"
// Element of the moments of channel `c` and part `p` of image n; the squares lie PACK after the mean.
#define MOMENT(c, p) (((((size_t)n * blocks + (c) / PACK) * parts + (p)) * 2) * PACK + (c) % PACK)

// Parts of unequal size joined as Chan, Golub and LeVeque do (1979).
// Grid: WG, batch * groups, `total`; the last is computed again where a work-group has more of them.  table: [batch * blocks, 2, PACK], zero past the last channel.
kernel ROW_GROUP void normalize_combine(global const ACC *moments, SCALE_PARAM BIAS_PARAM global ACC *table, int groups,
                                        int total, int channels, int blocks, int depth, int parts, int span, int spatial,
                                        ACC epsilon) {
    LOCAL_PARTS(ACC, part);
    const int id = min((int)get_global_id(1), total - 1), n = id / groups, group = id - n * groups, begin = group * depth;
    ACC mean = 0;
    for (int i = get_local_id(0); i < depth * parts; i += WG) {
        const int p = i / depth;
        mean += moments[MOMENT(begin + i - p * depth, p)] * min(span, spatial - p * span);
    }
    FOLD_ROW(ADD2, mean, part);
    mean /= (ACC)depth * spatial;
    ACC squares = 0;
    for (int i = get_local_id(0); i < depth * parts; i += WG) {
        const int p = i / depth;
        const size_t at = MOMENT(begin + i - p * depth, p);
        const ACC d = moments[at] - mean;
        squares += moments[at + PACK] + d * d * min(span, spatial - p * span);
    }
    FOLD_ROW(ADD2, squares, part);
    const ACC common = (ACC)1 / sqrt(squares / ((ACC)depth * spatial) + epsilon);
    const int end = group == groups - 1 ? blocks * PACK : begin + depth;
    for (int c = begin + get_local_id(0); c < end; c += WG) {
        ACC factor = 0, offset = 0;
        if (c < channels) {
            factor = common;
#if HAS_SCALE
            factor *= LOAD(scale, c);
#endif
            offset = -mean * factor;
#if HAS_BIAS
            offset += LOAD(bias, c);
#endif
        }
        const size_t at = ((size_t)n * blocks + c / PACK) * 2 * PACK + c % PACK;
        table[at] = factor;
        table[at + PACK] = offset;
    }
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
