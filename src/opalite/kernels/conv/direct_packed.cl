// Direct convolution into channel-packed blocks: one work-item computes tiles of TW adjacent output columns of TB
// output blocks, accumulators in registers, input elements broadcast against vectors of PACK output channels.
//   y[n, o, p] = bias[o] + sum over b, k, c of x[n, b, p*S - pad + k*D][c] * w[group, tile, b, k, c, o]
// Input columns that leave the row are first staged in private memory, padding as zeros, so that the inner loop checks
// no bounds.
// Needs KD KH KW (filter), SD SH SW (stride), DD DH DW (dilation), HAS_BIAS, and
//   IN_PACK   channels in a block of x: PACK, or 1 for a row-major x
//   RUN       filter columns that one staged run serves: KW, or 1 where dilation would make runs long
//   STEP      distance of staged columns; divides SW and DW, or is SW where RUN == 1
//   UNROLL    input channels in one iteration of the inner loop
//   UNROLL_K  filter columns in one iteration of the loop around it
//   IN_REGISTERS  1: unroll a whole run, so that it stays in registers (GPU); 0: broadcast elements from memory (CPU)
//   DIRECT    1: tiles inside the row are not staged but read from x (where a global pointer may point to private memory, and
//             x holds ACC; STEP is 1)
//   GROUP     adjacent tiles that use one chunk of filters in turn; 1: each tile uses all filters at once
//   BANDED    see conv/register_tile.cl
//   MASK      1: the last block's lanes from `m` on are set to zero
//   NARROW    1: rows may be shorter than TW columns
// Weights: [groups, ceil(ob / TB), ib, KD*KH*KW, IN_PACK, TB, PACK]; bias: [groups * ob * PACK], ob and ib counted in a
// group, cg = channels of a group in x. A work-item does `span` adjacent tiles in turn. `chunk` is counted in rows
// of the filter, of which `ahead` lines of 64 bytes of the next chunk are fetched during each, and the inputs that the
// tile meets there: another core may have written them.
// Grid: ceil(column tiles * oh * od / span), groups * ceil(ob / TB), batch.
#define NEXT_PIXEL (SW / STEP * IN_PACK)
#if IN_REGISTERS
#undef UNROLL
#define UNROLL IN_PACK
#define RUN_UNROLL RUN
#else
#define RUN_UNROLL UNROLL_K
#endif
#if DIRECT
#define INPUT global const ACC *
#define ELEMENT(p, i) (p)[i]
#endif
#include "conv/register_tile.cl"
#define COLUMNS (((TW - 1) * SW + (RUN - 1) * DW) / STEP + 1)
#define COLUMN_STEP STEP
#define COLUMN_LANES IN_PACK
#include "include/load_columns.cl"
// Lines of 64 bytes that hold the columns of a tile.
#define COLUMN_LINES ((COLUMNS * STEP * IN_PACK * (int)sizeof(REAL) + 63) / 64)
// Start of the row of x for row r of the filter.
#define LINE(r) \
    (((((size_t)(n * groups + g) * ib + (r) / (KD * KH)) * id + (oz * SD - pd + (r) % (KD * KH) / KH * DD)) * ih \
      + (oy * SH - ph + (r) % KH * DH)) * iw * IN_PACK)
#define ROW (KW * IN_PACK * TB * PACK)
#define TERMS (KW * IN_PACK)
// Columns of a tile from x0 on that precede the row, if the row is shorter than the tile.
#if NARROW
#define BEFORE(x0) max(-(x0), 0)
#else
#define BEFORE(x0) 0
#endif

kernel void conv_packed(global const REAL *restrict x, global const REAL *restrict weights,
                        BIAS_PARAM global REAL *restrict y, int span, int chunk, int ahead, int batch, int groups, int cg,
                        int ib, int ob, int m, BAND_PARAMS int id, int ih, int iw, int od, int oh, int ow, int pd, int ph,
                        int pw EPILOGUE_PARAMS) {
    const int og = (ob + TB - 1) / TB, g = get_global_id(1) / og, tile = get_global_id(1) - g * og;
    const int n = get_global_id(2);
    if (g >= groups || n >= batch) return;
    const int first = g * ob + tile * TB, blocks = min(TB, ob - tile * TB), rows = ib * (KD * KH);
    const int tiles = (ow + TW - 1) / TW, begin = get_global_id(0) * span, end = min(begin + span, tiles * oh * od);
    global const REAL *filters = weights + (size_t)get_global_id(1) * rows * ROW;
    const int low = BAND_BEGIN(tile * TB * PACK) / IN_PACK * (KD * KH);
    const int high = (BAND_END(min((tile + 1) * TB * PACK, m / groups), ib * IN_PACK) + IN_PACK - 1) / IN_PACK * (KD * KH);
    KEPT_TILES
    for (int i0 = begin; i0 < end; i0 += GROUP) {
        const int i1 = min(i0 + GROUP, end);
        for (int row0 = low; row0 < high; row0 += CHUNK(high - low)) {
            const int row1 = min(row0 + CHUNK(high - low), high);
            global const REAL *next = filters + (size_t)row1 * ROW;
            for (int i = i0; i < i1; ++i) {
                const int row = i / tiles, oz = row / oh, oy = row - oz * oh;
                // The last tile is shifted back into the row and recomputes part of the previous tile.
                const int x0 = min((i - row * tiles) * TW, ow - TW), start = x0 * SW - pw;
                global const REAL *w = filters + (size_t)row0 * ROW;
                ACCV acc[TW * TB];
                RESUME_TILE(acc, row0 > low, BIAS_ARG first, blocks);
                for (int r = row0; r < row1; ++r, w += ROW) {
                    const int b = r / (KD * KH), kzy = r - b * (KD * KH);
                    const int iz = oz * SD - pd + kzy / KH * DD, iy = oy * SH - ph + kzy % KH * DH;
                    next = fetch_lines(next, ahead);
#if GROUP > 1 && IN_PACK > 1
                    if (row1 < high) fetch_lines(x + LINE(r + chunk) + (ptrdiff_t)start * IN_PACK, COLUMN_LINES);
#endif
                    if (iz < 0 || iz >= id || iy < 0 || iy >= ih) continue;
#if IN_REGISTERS || IN_PACK == 1
                    const size_t lanes = IN_PACK;
#else
                    const size_t lanes = min(IN_PACK, cg - b * IN_PACK);
#endif
                    const size_t line = LINE(r);
                    for (int k0 = 0; k0 < KW; k0 += RUN) {
                        COLUMN staged[COLUMNS];
#if DIRECT
                        INPUT columns = x + line + (ptrdiff_t)start * IN_PACK;
                        if (start < 0 || start + COLUMNS > iw) {
                            load_columns(staged, x, line, start, iw);
                            columns = (INPUT)(size_t)staged;
                        }
#else
                        load_columns(staged, x, line, start + k0 * DW, iw);
                        INPUT columns = (INPUT)staged;
#endif
                        global const REAL *taps = w + k0 * (IN_PACK * TB * PACK);
                        #pragma unroll RUN_UNROLL
                        for (int k = 0; k < RUN; ++k)
                            multiply_tile(acc, columns + k * DW / STEP * IN_PACK, taps + k * (IN_PACK * TB * PACK), lanes);
                    }
                }
                if (SUSPEND_TILE(acc, i - i0, row0 > low, row1 < high)) continue;
                store_tile(acc, y, n, first, blocks, groups * ob, m, od * oh * ow, row * ow + x0, 1, BEFORE(x0),
                           TW EPILOGUE_ARGS);
            }
        }
    }
}
