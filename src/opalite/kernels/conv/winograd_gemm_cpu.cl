// The matrix products of a Winograd convolution on a CPU, one for each element of the transformed tiles (and each group
// of channels): one work-item computes tiles of TW adjacent positions of TB output blocks.
//   m[g, o, p] = sum over b, c of v[g, b, p][c] * u[g, panel, b, c, o]
// Transformed filters are large and each is used by few positions, so reading them dominates: while a
// work-item uses one panel it prefetches the next, `ahead` floats further at each channel.
// Filters u: [groups, ceil(ob / TB), ib, PACK, TB, PACK] floats, ob and ib counted in a group, cg = channels of a group,
// s = positions, at least TW unless NARROW. A work-item does `span` adjacent tiles in turn.
// Grid: ceil(ceil(s / TW) / span), groups * ceil(ob / TB).
#ifndef TW
#define TW 4
#define TB 1
#define UNROLL 1
#endif
#define INPUT global const REAL *
#define ELEMENT(p, i) (p)[i]
#include "conv/register_tile.cl"
#define PANEL_STEP (PACK * TB * PACK)

__attribute__((reqd_work_group_size(1, 1, 1)))
kernel void winograd_product(global const float *restrict v, global const float *restrict u, global float *restrict m,
                             int span, int ahead, int groups, int cg, int ib, int ob, int s) {
    const int panels = (ob + TB - 1) / TB, g = get_global_id(1) / panels, panel = get_global_id(1) - g * panels;
    if (g >= groups) return;
    const int blocks = min(TB, ob - panel * TB);
    const int begin = get_global_id(0) * span, end = min(begin + span, (s + TW - 1) / TW);
    global const float *filters = u + (size_t)get_global_id(1) * ib * PANEL_STEP;
    global const float *next = filters + (size_t)ib * PANEL_STEP;
#if NARROW
    if (s < TW) {
        for (int p = begin * s; p < end * s; ++p) {
            ACCV acc[TW * TB];
            start_tile(acc, panel * TB, blocks);
            for (int b = 0; b < ib; ++b)
                multiply_pixel(acc, v + (((size_t)g * ib + b) * s + p) * PACK, filters + (size_t)b * PANEL_STEP,
                               min(PACK, cg - b * PACK));
            store_tile(acc, m, 0, g * ob + panel * TB, blocks, groups * ob, 0, s, p, 1, 0, 1);
        }
        return;
    }
#endif
    for (int i = begin; i < end; ++i) {
        // The last tile is shifted back into the tensor and recomputes part of the previous tile.
        const int p0 = min(i * TW, s - TW);
        global const float *w = filters;
        ACCV acc[TW * TB];
        start_tile(acc, panel * TB, blocks);
        for (int b = 0; b < ib; ++b) {
            global const float *column = v + (((size_t)g * ib + b) * s + p0) * PACK;
            const size_t lanes = min(PACK, cg - b * PACK);
            #pragma unroll UNROLL
            for (size_t c = 0; c < lanes; ++c) {
                PREFETCH(next);
                next += ahead;
                multiply_channel(acc, column, w, c);
            }
            w += PANEL_STEP;
        }
        store_tile(acc, m, 0, g * ob + panel * TB, blocks, groups * ob, 0, s, p0, 1, 0, TW);
    }
}
