// y[n, c, p] = x[n, c] at the position grid[n, p], in vectors of PACK channels (1 for flat tensors).
//   DIMS      2 or 3 spatial axes     TAPS   elements read along each: 1 nearest, 2 linear, 4 cubic
//   CHUNK, RUN   channel blocks and positions, side by side, that one work-item computes
//   POSITION_STORAGE   as STORAGE, of the grid
//   padding   what is outside: 0 zeros, 1 the end elements, 2 reflection
//   corners   whether -1 and 1 are the centres of the end elements
#include "include/stored_positions.cl"
#define FAR ((POS)1e9f)

static inline int pad_index(int i, int size, int padding, int corners) {
    if (padding == 0) return i >= 0 && i < size ? i : -1;
    if (padding == 1) return clamp(i, 0, size - 1);
    const int period = corners ? max(2 * (size - 1), 1) : 2 * size, m = i % period, folded = m < 0 ? m + period : m;
    return folded < size ? folded : period - !corners - folded;
}

static inline POS cubic_near(POS d) { return (1.25f * d - 2.25f) * d * d + 1; }
static inline POS cubic_far(POS d) { return ((-0.75f * d + 3.75f) * d - 6) * d + 3; }

// Offsets and weights of the taps of one axis with `size` elements `stride` apart, and which of them are outside among
// zeros: those read the first element, and count nothing. NaN counts as -1. Tap t goes to place t * RUN.
static inline void find_taps(POS g, int size, int stride, int padding, int corners, int *offset, ACC *weight, int *zero) {
    g = isnan(g) ? (POS)-1 : g;
    POS at = corners ? (g + 1) / 2 * (size - 1) : ((g + 1) * size - 1) / 2;
    at = fmin(fmax(at, -FAR), FAR);
#if TAPS == 1
    const int first = (int)rint(at);
    weight[0] = 1;
#else
    const POS low = floor(at), s = at - low;
#if TAPS == 2
    const int first = (int)low;
    weight[0] = 1 - s;
    weight[RUN] = s;
#else
    const int first = (int)low - 1;
    weight[0] = cubic_far(s + 1);
    weight[RUN] = cubic_near(s);
    weight[2 * RUN] = cubic_near(1 - s);
    weight[3 * RUN] = cubic_far(2 - s);
#endif
#endif
    for (int t = 0; t < TAPS; ++t) {
        const int i = pad_index(first + t, size, padding, corners);
        zero[t * RUN] = padding == 0 && i < 0;
        offset[t * RUN] = max(i, 0) * stride;
    }
}

kernel void grid_sample(
    global const REAL *x, global const POSITION *grid, global REAL *y, int items, int positions, int chunks, int blocks, int depth,
    int height, int width, int padding, int corners
) {
    const int id = get_global_id(0);
    if (id >= items) return;
    const int runs = (positions + RUN - 1) / RUN, first = id % runs * RUN, group = id / runs, chunk = group % chunks;
    const int n = group / chunks, own = min(RUN, positions - first);
    int ox[TAPS][RUN], oy[TAPS][RUN], oz[TAPS][RUN], nx[TAPS][RUN], ny[TAPS][RUN], nz[TAPS][RUN];
    ACC wx[TAPS][RUN], wy[TAPS][RUN], wz[TAPS][RUN];
    for (int q = 0; q < RUN; ++q) {
        const size_t at = ((size_t)n * positions + first + min(q, own - 1)) * DIMS;
        find_taps(LOAD_POSITION(grid, at), width, 1, padding, corners, &ox[0][q], &wx[0][q], &nx[0][q]);
        find_taps(LOAD_POSITION(grid, at + 1), height, width, padding, corners, &oy[0][q], &wy[0][q], &ny[0][q]);
#if DIMS == 3
        find_taps(LOAD_POSITION(grid, at + 2), depth, width * height, padding, corners, &oz[0][q], &wz[0][q], &nz[0][q]);
#else
        oz[0][q] = nz[0][q] = 0;
        wz[0][q] = 1;
#endif
    }
    const size_t plane = (size_t)depth * height * width;
    const int end = min((chunk + 1) * CHUNK, blocks);
    for (int b = chunk * CHUNK; b < end; ++b) {
        global const REAL *from = x + ((size_t)n * blocks + b) * plane * PACK;
        ACCV sum[RUN];
        for (int q = 0; q < RUN; ++q) sum[q] = (ACCV)(0);
        for (int i = 0; i < (DIMS == 3 ? TAPS : 1); ++i) {
            for (int j = 0; j < TAPS; ++j) {
                for (int k = 0; k < TAPS; ++k) {
                    for (int q = 0; q < RUN; ++q) {
                        const ACCV v = LOADV(from, (size_t)(oz[i][q] + oy[j][q] + ox[k][q]) * PACK);
                        sum[q] += wz[i][q] * wy[j][q] * wx[k][q] * (nz[i][q] | ny[j][q] | nx[k][q] ? (ACCV)(0) : v);
                    }
                }
            }
        }
        const size_t to = ((size_t)n * blocks + b) * positions + first;
        for (int q = 0; q < own; ++q) STOREV(y, (to + q) * PACK, sum[q]);
    }
}
