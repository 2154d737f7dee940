// y[o, i] = reduction of x[o, 0..length, i] for x[outer, length, inner], along the middle axis (reduce/reduction_kinds.cl).
// A work-item takes PACK neighbours of the inner axis, PACK <= inner; LY work-items of a group share a line, every
// LY-th element each. Grid: ceil(inner / PACK), LY, outer * parts; work-group: LX, LY, 1.
//   parts, span   a line is taken in `parts` parts of `span` elements each; with more than one, y holds
//                 [outer, parts, inner]
//   BLOCKS        0: flat tensors, the epilogue (rows) sees [outer, inner]
//                 1: channel-packed ones in blocks of PACK; the output is [batch, blocks, spatial, PACK], the epilogue
//                 packed, and lanes past `channels` are written as zero
#include "reduce/reduction_kinds.cl"
#include "include/reduce_lanes.cl"
#ifndef LX
#define LX 1
#define LY 1
#endif
#ifndef BLOCKS
#define BLOCKS 0
#endif
#if LY == 1
#define FOLD_LINE(f, v, part)
#else
// v becomes f over the v of the line's LY work-items; all work-items of the group must get here.
#define FOLD_LINE(f, v, part)                                                    \
    do {                                                                         \
        const int at_ = get_local_id(1) * LX + get_local_id(0);                  \
        barrier(CLK_LOCAL_MEM_FENCE);                                            \
        part[at_] = (v);                                                         \
        for (int step_ = LY / 2; step_ > 0; step_ /= 2) {                        \
            barrier(CLK_LOCAL_MEM_FENCE);                                        \
            if ((int)get_local_id(1) < step_) part[at_] = f(part[at_], part[at_ + step_ * LX]); \
        }                                                                        \
        barrier(CLK_LOCAL_MEM_FENCE);                                            \
        (v) = part[get_local_id(0)];                                             \
    } while (0)
#endif

__attribute__((reqd_work_group_size(LX, LY, 1)))
kernel void reduce_lines(global const SOURCE *x, global RESULT *y, int outer, int length, int inner, int parts,
                         int span, int count, int blocks, int spatial, int channels EPILOGUE_PARAMS) {
#if LY > 1
    local ACCV part[LX * LY];
#endif
    const int chunk = get_global_id(0) * PACK, id = get_global_id(2), o = id / parts, begin = id % parts * span;
    // The last vector is shifted to end with the line; it overlaps the previous vector.
    const int i = min(chunk, inner - PACK), own = id < outer * parts ? clamp(length - begin, 0, span) : 0;
    x += ((size_t)(id < outer * parts ? o : 0) * length + begin) * inner + i;
    ACCV v = (ACCV)START;
    for (int j = get_local_id(1); j < own;) {
        ACCV a = (ACCV)START;
        const int stop = min(own, j + BLOCK * LY);
        for (; j < stop; j += LY) {
            const ACCV e = TAKE(PACK, x, (size_t)j * inner);
            a = JOIN(a, e);
        }
        v = JOIN(v, a);
    }
    FOLD_LINE(JOIN, v, part);
#if KIND == 9
    const ACCV shift = ((v > (ACC)LEAST) & (v < (ACC)MOST)) ? v : (ACCV)0;
    ACCV sum = (ACCV)0;
    for (int j = get_local_id(1); j < own; j += LY) sum += exp(ELEMENTS(PACK, x, (size_t)j * inner) - shift);
    FOLD_LINE(LANES_ADD, sum, part);
    v = log(sum) + shift;
#endif
    if (id >= outer * parts || chunk >= inner || get_local_id(1) > 0) return;
#if LAST_PASS
    v = FINISH(v, count);
#if BLOCKS
    const int s = (o * inner + i) / PACK, c = s / spatial % blocks;
    v = EPILOGUE(v, s / spatial / blocks, c, s % spatial, blocks, spatial);
    v = MASK_LANES(v, channels - c * PACK);
#else
    v = EPILOGUE(v, o, i, outer, inner);
#endif
#endif
    GIVE(PACK, y, (size_t)id * inner + i, v);
}
