// y = (x - mean) / sqrt(variance + epsilon) * scale + bias for each row of x[rows, segments * run], or with RMS
// y = x / sqrt(mean(x^2) + epsilon) * scale + bias. WG work-items share a row, PACK elements at a time (reduce/work_group_rows.cl).
//   ALIGNED       1: PACK divides run, so that vectors lie at multiples of PACK elements
//   HELD          vectors of a row, which is one segment and whole vectors, that a work-item reads once and keeps; 0: it reads
//                 the row for the mean, for the variance and for the result
//   SCALE, BIAS   0: none; 1: one for each segment of each of `period` rows; 2: one for each column (one segment)
// The variance is the mean of squared differences, in a pass after the mean's.
// Where rows are held, scale and bias by columns are loaded before waiting for earlier launches.
// Epilogue (rows): segments are its rows, so that it sees [rows * segments, run].
#define ADD2(a, b) ((a) + (b))
#define HAS_SCALE SCALE
#define HAS_BIAS BIAS
#include "include/optional_scale_bias.cl"
#include "include/sum_block.cl"
#include "include/async_constant_loads.cl"
#if ALIGNED
#include "include/aligned_blocks.cl"
#endif
// Scale and bias at column `i` of the segment, read by LOADV or LOAD; where rows are held, of vector `u` of those.
#if SCALE == 2
#define SCALED(READ, v, i) ((v) * READ(scale, i))
#define SCALED_HELD(v, u) ((v) * scales[u])
#else
#define SCALED(READ, v, i) (v)
#define SCALED_HELD(v, u) (v)
#endif
#if BIAS == 2
#define BIASED(READ, v, i) ((v) + READ(bias, i))
#define BIASED_HELD(v, u) ((v) + biases[u])
#else
#define BIASED(READ, v, i) ((v) + shift)
#define BIASED_HELD(v, u) ((v) + shift)
#endif

kernel ROW_GROUP void normalize_rows(global const REAL *x, SCALE_PARAM BIAS_PARAM global REAL *y, int rows, int segments,
                                     int run, int period, ACC epsilon EPILOGUE_PARAMS) {
    LOCAL_PARTS(ACC, part);
    const int columns = segments * run, first = get_local_id(0);
    const bool inside = get_global_id(1) < rows;
    const int row = inside ? get_global_id(1) : 0, end = inside ? columns : 0;
    x += (size_t)row * columns;
    y += (size_t)row * columns;

#if HELD
#if SCALE == 2
    ACCV scales[HELD];
    #pragma unroll
    for (int u = 0; u < HELD; ++u) scales[u] = LOADV(scale, min((u * WG + first) * PACK, columns - PACK));
#endif
#if BIAS == 2
    ACCV biases[HELD];
    #pragma unroll
    for (int u = 0; u < HELD; ++u) biases[u] = LOADV(bias, min((u * WG + first) * PACK, columns - PACK));
#endif
    AWAIT;
    ACCV held[HELD], sums = (ACCV)0, squares = (ACCV)0;
    #pragma unroll
    for (int u = 0; u < HELD; ++u) {
        const int i = (u * WG + first) * PACK;
        held[u] = i < end ? LOADV(x, i) : (ACCV)0;
        sums += held[u];
    }
#if RMS
    const ACC mean = 0;
#else
    ACC mean = SUM_LANES(sums);
    FOLD_ROW(ADD2, mean, part);
    mean /= columns;
#endif
    #pragma unroll
    for (int u = 0; u < HELD; ++u) {
        const ACCV d = held[u] - mean;
        if ((u * WG + first) * PACK < end) squares += d * d;
    }
#else
#if RMS
    const ACC mean = 0;
#else
    ACCV sums = (ACCV)0;
    int j = first * PACK;
#ifdef BLOCK_LOAD
    for (int at = 0; BLOCKS_FIT && at + WG * PACK <= end; at += WG * PACK, j += WG * PACK) sums += BLOCK_LOAD(x + at);
#endif
    while (j + PACK <= end) {
        ACCV block = (ACCV)0;
        for (int n = 0; n < SUM_BLOCK && j + PACK <= end; ++n, j += WG * PACK) block += LOADV(x, j);
        sums += block;
    }
    if (j < end) sums += load_part(x, j, end, 0);
    ACC mean = SUM_LANES(sums);
    FOLD_ROW(ADD2, mean, part);
    mean /= columns;
#endif

    ACCV squares = (ACCV)0;
    int i = first * PACK;
#ifdef BLOCK_LOAD
    for (int at = 0; BLOCKS_FIT && at + WG * PACK <= end; at += WG * PACK, i += WG * PACK) {
        const ACCV d = BLOCK_LOAD(x + at) - mean;
        squares += d * d;
    }
#endif
    while (i + PACK <= end) {
        ACCV block = (ACCV)0;
        for (int n = 0; n < SUM_BLOCK && i + PACK <= end; ++n, i += WG * PACK) {
            const ACCV d = LOADV(x, i) - mean;
            block += d * d;
        }
        squares += block;
    }
    if (i < end) {
        const ACCV d = load_part(x, i, end, mean) - mean;
        squares += d * d;
    }
#endif
    ACC variance = SUM_LANES(squares);
    FOLD_ROW(ADD2, variance, part);
    const ACC norm = (ACC)1 / sqrt(variance / columns + epsilon);

    if (!inside) return;
    for (int s = 0; s < segments; ++s, x += run, y += run) {
        ACC factor = norm, shift = 0;
#if SCALE == 1
        factor *= LOAD(scale, row % period * segments + s);
#endif
#if BIAS == 1
        shift = LOAD(bias, row % period * segments + s);
#endif
        const int line = row * segments + s;
#if HELD
        #pragma unroll
        for (int u = 0; u < HELD; ++u) {
            const int i = (u * WG + first) * PACK;
            if (i < run) {
                ACCV v = (held[u] - mean) * factor;
                v = BIASED_HELD(SCALED_HELD(v, u), u);
                v = EPILOGUE(v, line, i, rows * segments, run);
                STOREV(y, i, v);
            }
        }
#else
        const int vectors = run / PACK;
        for (int k = first; k < vectors; k += WG) {
            const int i = k * PACK;
            ACCV v = (LOADV(x, i) - mean) * factor;
            v = BIASED(LOADV, SCALED(LOADV, v, i), i);
            v = EPILOGUE(v, line, i, rows * segments, run);
            STOREV(y, i, v);
        }
        for (int i = vectors * PACK + first; i < run; i += WG) {
            ACC v = (LOAD(x, i) - mean) * factor;
            v = BIASED(LOAD, SCALED(LOAD, v, i), i);
            v = EPILOGUE1(v, line, i, rows * segments, run);
            STORE(y, i, v);
        }
#endif
    }
}
