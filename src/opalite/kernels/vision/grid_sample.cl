// y[n, c, p] = x[n, c] at the position grid[n, p], in vectors of PACK channels (1 for flat tensors).
//   DIMS      2 or 3 spatial axes     TAPS   elements read along each: 1 nearest, 2 linear, 4 cubic
//   PADDING   what lies outside: 0 zeros, 1 the end elements, 2 reflection
//   CORNERS   whether -1 and 1 are the centres of the end elements
//   CHUNK     channel blocks that one work-item computes
//   POSITION_STORAGE   as STORAGE, of the grid
#include "include/stored_positions.cl"
#define FAR ((POS)1e9f)

static inline int pad_index(int i, int size) {
#if PADDING == 0
    return i >= 0 && i < size ? i : -1;
#elif PADDING == 1
    return clamp(i, 0, size - 1);
#elif CORNERS
    const int period = max(2 * (size - 1), 1), m = i % period, folded = m < 0 ? m + period : m;
    return folded < size ? folded : period - folded;
#else
    const int period = 2 * size, m = i % period, folded = m < 0 ? m + period : m;
    return folded < size ? folded : period - 1 - folded;
#endif
}

static inline POS cubic_near(POS d) { return (1.25f * d - 2.25f) * d * d + 1; }
static inline POS cubic_far(POS d) { return ((-0.75f * d + 3.75f) * d - 6) * d + 3; }

// Offsets (or -1) and weights of the taps of one axis with `size` elements `stride` apart. NaN counts as -1.
static inline void find_taps(POS g, int size, int stride, int *offset, ACC *weight) {
    g = isnan(g) ? (POS)-1 : g;
#if CORNERS
    POS at = (g + 1) / 2 * (size - 1);
#else
    POS at = ((g + 1) * size - 1) / 2;
#endif
    at = fmin(fmax(at, -FAR), FAR);
#if TAPS == 1
    const int first = (int)rint(at);
    weight[0] = 1;
#else
    const POS low = floor(at), s = at - low;
#if TAPS == 2
    const int first = (int)low;
    weight[0] = 1 - s;
    weight[1] = s;
#else
    const int first = (int)low - 1;
    weight[0] = cubic_far(s + 1);
    weight[1] = cubic_near(s);
    weight[2] = cubic_near(1 - s);
    weight[3] = cubic_far(2 - s);
#endif
#endif
    for (int t = 0; t < TAPS; ++t) {
        const int i = pad_index(first + t, size);
        offset[t] = i < 0 ? -1 : i * stride;
    }
}

kernel void grid_sample(
    global const REAL *x, global const POSITION *grid, global REAL *y, int items, int positions, int chunks, int blocks, int depth,
    int height, int width
) {
    const int id = get_global_id(0);
    if (id >= items) return;
    const int p = id % positions, group = id / positions, chunk = group % chunks, n = group / chunks;
    const size_t at = ((size_t)n * positions + p) * DIMS;
    int ox[TAPS], oy[TAPS], oz[TAPS];
    ACC wx[TAPS], wy[TAPS], wz[TAPS];
    find_taps(LOAD_POSITION(grid, at), width, 1, ox, wx);
    find_taps(LOAD_POSITION(grid, at + 1), height, width, oy, wy);
#if DIMS == 3
    find_taps(LOAD_POSITION(grid, at + 2), depth, width * height, oz, wz);
    const int depth_taps = TAPS;
#else
    oz[0] = 0;
    wz[0] = 1;
    const int depth_taps = 1;
#endif
    const size_t plane = (size_t)depth * height * width;
    const int end = min((chunk + 1) * CHUNK, blocks);
    for (int b = chunk * CHUNK; b < end; ++b) {
        global const REAL *from = x + ((size_t)n * blocks + b) * plane * PACK;
        ACCV sum = (ACCV)(0);
        for (int i = 0; i < depth_taps; ++i) {
            for (int j = 0; j < TAPS; ++j) {
                if (oz[i] < 0 || oy[j] < 0) continue;
                for (int k = 0; k < TAPS; ++k) {
                    if (ox[k] < 0) continue;
                    sum += wz[i] * wy[j] * wx[k] * LOADV(from, (size_t)(oz[i] + oy[j] + ox[k]) * PACK);
                }
            }
        }
        STOREV(y, (((size_t)n * blocks + b) * positions + p) * PACK, sum);
    }
}
