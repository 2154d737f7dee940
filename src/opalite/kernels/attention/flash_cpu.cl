// y[b,h,s] = sum_t softmax_t(cap(scale * q[b,h,s] . k[b,g,t]) + mask[b,h,s,t]) * v[b,g,t] (ops/attention.py) on CPUs.
// One work-item takes `rows` queries (a multiple of MR) of one head through all keys, BLOCKS blocks of WIDTH = 2 * PACK
// keys at a time, so that scores never leave the cache. Online softmax: if later keys raise a row's maximum,
// the previous sums are scaled down (Milakov and Gimelshein 2018, Dao et al. 2022). Blocks that the mask hides for
// all rows of a tile are skipped. Grid: (ceil(S / rows), H, B), groups of one work-item.
//   MR        rows of a register tile
//   BLOCKS    key blocks per update of a row's maximum and factor
//   MASK      0 none, 1 a mask whose elements are contiguous along t, 2 one element for all t
//   CAUSAL    query s sees the keys t <= s     SOFTCAP   cap(x) = softcap * tanh(x / softcap)
//   EXPV, TANHV, EXP1    exp and tanh of ACCV, exp of ACC
//   work      local memory, see the pointers into it; columns is Dv rounded up to PACK
#include "attention/blind_rows.cl"
#include "include/block_transpose.cl"
#include "include/reduce_lanes.cl"
#ifndef MR
#define MR 8
#define BLOCKS 2
#define MASK 0
#define CAUSAL 0
#define SOFTCAP 0
#endif
#include "attention/cpu_lanes.cl"
#define NV 2
#define WIDTH (NV * PACK)
#define KEYS (BLOCKS * WIDTH)

// The statement that follows for each vector of a register tile: row i, vector j.
#define EACH_ROW _Pragma("unroll") for (int i = 0; i < MR; ++i)
#define EACH_VECTOR _Pragma("unroll") for (int j = 0; j < NV; ++j)

// WIDTH keys from t on, `step` elements apart, as k[D][WIDTH], zeros past T. Returns the sum of their squares.
static inline ACC stage_keys(global const REAL *k, int step, local ACC *kt, int t, int T, int D) {
    ACCV squares = (ACCV)0;
    ACC rest = 0;
    for (int j = 0; j < NV; ++j) {
        const int first = t + j * PACK;
        int d = 0;
        for (; d + PACK <= D; d += PACK) {
            ACCV block[PACK];
            #pragma unroll
            for (int i = 0; i < PACK; ++i) {
                block[i] = first + i < T ? LOADV(k, (first + i) * step + d) : (ACCV)0;
                squares += block[i] * block[i];
            }
            transpose(block);
            #pragma unroll
            for (int i = 0; i < PACK; ++i) PUT(kt, (d + i) * WIDTH + j * PACK, block[i]);
        }
        for (; d < D; ++d)
            for (int i = 0; i < PACK; ++i) {
                const ACC x = first + i < T ? LOAD(k, (first + i) * step + d) : (ACC)0;
                kt[d * WIDTH + j * PACK + i] = x;
                rest += x * x;
            }
    }
    return SUM_LANES(squares) + rest;
}

// `count` rows of `size` elements, `step` apart, as rows of `pitch` elements, times `scale`; zeros past the size and up
// to `all` rows. Returns the sum of their squares.
static inline ACC stage_rows(global const REAL *x, int step, local ACC *out, int count, int all, int size, int pitch,
                             ACC scale) {
    ACCV squares = (ACCV)0;
    ACC rest = 0;
    for (int r = 0; r < all; ++r) {
        int c = 0;
        if (r < count) {
            for (; c + PACK <= size; c += PACK) {
                const ACCV v = LOADV(x, r * step + c) * scale;
                PUT(out, r * pitch + c, v);
                squares += v * v;
            }
            for (; c < size; ++c) {
                const ACC v = LOAD(x, r * step + c) * scale;
                out[r * pitch + c] = v;
                rest += v * v;
            }
        }
        for (; c < pitch; ++c) out[r * pitch + c] = 0;
    }
    return SUM_LANES(squares) + rest;
}

#if MASK == 1
// The range of blocks within `count` keys from t on that the mask leaves visible to any of `rows` queries from s on:
// *begin is the first block, *end is one past the last. Skipped keys have weights of exactly zero: no score exceeds
// `bound`, and exponentials FAINT below a row's largest score are zero. With a NaN bound no block is skipped.
#define FAINT (STORAGE == 2 ? (ACC)-800 : (ACC)-120)
static inline void find_seen(global const MASK_REAL *mask, int mask_s, int s, int rows, int S, int t, int T, int count,
                             local const ACC *most, ACC bound, int *begin, int *end) {
    ACC blocks[BLOCKS], least = -INFINITY, lowest = INFINITY;
    ACCV tops[BLOCKS];
    for (int b = 0; b < BLOCKS; ++b) tops[b] = (ACCV)(-INFINITY);
    for (int i = 0; i < rows; ++i) {
        if (i == 0 || mask_s != 0) {
            global const MASK_REAL *line = mask + (size_t)min(s + i, S - 1) * mask_s;
            ACCV top = (ACCV)(-INFINITY);
            for (int b = 0; b * WIDTH < count; ++b) EACH_VECTOR {
                const int first = t + b * WIDTH + j * PACK;
                if (first >= T) continue;
                ACCV x = mask_lanes(line, first, T);
                x = x != x ? (ACCV)INFINITY : x; // a NaN counts as visible
                if (first + PACK > T) x = FIRST_LANES(T - first) ? x : (ACCV)(-INFINITY);
                tops[b] = LARGER(x, tops[b]);
                top = LARGER(x, top);
            }
#if !CAUSAL
            least = FOLD_LANES(LARGER, top) - bound; // a score of the row, or an upper bound of one
#endif
        }
        const ACC largest = LARGER(least, most[i]);
        lowest = largest < lowest ? largest : lowest;
    }
    for (int b = 0; b * WIDTH < count; ++b) blocks[b] = FOLD_LANES(LARGER, tops[b]);
    int low = 0, high = (count + WIDTH - 1) / WIDTH;
#define FAINT_BLOCK(b) ((blocks[b] == (ACC)(-INFINITY) && bound < (ACC)INFINITY) || blocks[b] + bound - lowest < FAINT)
    while (low < high && FAINT_BLOCK(low)) ++low;
    while (low < high && FAINT_BLOCK(high - 1)) --high;
    *begin = low * WIDTH;
    *end = high * WIDTH;
}
#endif

// p[MR][KEYS], of which WIDTH: products of MR queries with WIDTH keys.
static inline void score(local const ACC *qs, local const ACC *kt, local ACC *p, int D) {
    ACCV sum[MR][NV];
    EACH_ROW EACH_VECTOR sum[i][j] = (ACCV)0;
    #pragma unroll 1
    for (int d = 0; d < D; ++d) {
        ACCV kv[NV];
        EACH_VECTOR kv[j] = GET(kt, d * WIDTH + j * PACK);
        EACH_ROW EACH_VECTOR sum[i][j] += (ACCV)qs[i * D + d] * kv[j];
    }
    EACH_ROW EACH_VECTOR PUT(p, i * KEYS + j * PACK, sum[i][j]);
}

// Turns scores p[count] of keys from t on, whole blocks, into exponentials, adds them to sums[PACK] and raises `most`,
// the row's largest score so far. Keys from `seen` on do not count. Returns the factor for the previous sums.
static inline ACC soften(local ACC *p, int count, local ACC *sums, local ACC *most, global const MASK_REAL *mask, int t,
                         int T, int seen, ACC softcap) {
    const ACC before = *most;
    ACCV top[NV];
    EACH_VECTOR top[j] = (ACCV)before;
    #pragma unroll 1
    for (int c = 0; c < count; c += WIDTH) EACH_VECTOR {
        const int at = c + j * PACK, first = t + at;
        ACCV x = GET(p, at);
#if SOFTCAP
        x = TANHV(x / softcap) * softcap;
#endif
#if MASK
        x += mask_lanes(mask, first, T);
#endif
        if (first + PACK > seen) x = FIRST_LANES(seen - first) ? x : (ACCV)(-INFINITY);
        PUT(p, at, x);
        top[j] = LARGER(top[j], x);
    }
    const ACC largest = FOLD_LANES(LARGER, LARGER(top[0], top[1]));
    // A row without a visible key so far stays at zero.
    const ACC shift = largest == (ACC)(-INFINITY) ? (ACC)0 : largest, keep = EXP1(before - shift);
    ACCV sum[NV];
    sum[0] = GET(sums, 0) * keep;
    sum[1] = (ACCV)0;
    #pragma unroll 1
    for (int c = 0; c < count; c += WIDTH) EACH_VECTOR {
        const ACCV x = EXPV(GET(p, c + j * PACK) - shift);
        sum[j] += x;
        PUT(p, c + j * PACK, x);
    }
    PUT(sums, 0, sum[0] + sum[1]);
    *most = largest;
    return keep;
}

// `vectors` of y[MR][columns] from the first on: y * keep + p[MR][KEYS] v[KEYS][columns], of which `count` keys.
#define ADD_VALUES(name, vectors)                                                                                      \
    static inline void name(local const ACC *p, local const ACC *vs, local ACC *y, const ACC *keep, int columns,      \
                            int count) {                                                                              \
        ACCV sum[MR][vectors];                                                                                        \
        EACH_ROW _Pragma("unroll") for (int j = 0; j < vectors; ++j)                                                  \
            sum[i][j] = GET(y, i * columns + j * PACK) * keep[i];                                                     \
        _Pragma("unroll 1") for (int l = 0; l < count; ++l) {                                                         \
            ACCV vv[vectors];                                                                                         \
            _Pragma("unroll") for (int j = 0; j < vectors; ++j) vv[j] = GET(vs, l * columns + j * PACK);              \
            EACH_ROW _Pragma("unroll") for (int j = 0; j < vectors; ++j) sum[i][j] += (ACCV)p[i * KEYS + l] * vv[j];  \
        }                                                                                                             \
        EACH_ROW _Pragma("unroll") for (int j = 0; j < vectors; ++j) PUT(y, i * columns + j * PACK, sum[i][j]);       \
    }
ADD_VALUES(add_wide, NV)
ADD_VALUES(add_narrow, 1)

__attribute__((reqd_work_group_size(1, 1, 1)))
kernel void attention_stream(global const REAL *restrict q, global const REAL *restrict k,
                             global const REAL *restrict v, global const MASK_REAL *restrict mask, global REAL *restrict y,
                             int batches, int heads, int sharing, int S, int T, int D, int Dv, PLACES, int mask_b,
                             int mask_h, int mask_s, int rows, ACC scale, ACC softcap, local ACC *work) {
    const int s0 = get_global_id(0) * rows, h = get_global_id(1), b = get_global_id(2);
    if (s0 >= S || h >= heads || b >= batches) return;
    const int count = min(rows, S - s0), all = (count + MR - 1) / MR * MR, columns = (Dv + PACK - 1) / PACK * PACK;
    q = HEAD(q, b, h) + s0 * q_s;
    k = HEAD(k, b, h / sharing);
    v = HEAD(v, b, h / sharing);
    y = HEAD(y, b, h) + s0 * y_s;
    mask += (size_t)b * mask_b + (size_t)h * mask_h;
    local ACC *qs = work;                        // [rows][D], scaled
    local ACC *kt = qs + rows * D;               // [BLOCKS][D][WIDTH]
    local ACC *vs = kt + D * KEYS;               // [KEYS][columns]
    local ACC *sum_y = vs + KEYS * columns;      // [rows][columns]
    local ACC *p = sum_y + rows * columns;       // [MR][KEYS]
    local ACC *sums = p + MR * KEYS;             // [rows][PACK], of exponentials
    local ACC *most = sums + rows * PACK;        // [rows]

    const ACC queries = stage_rows(q, q_s, qs, count, all, D, D, scale);
    for (int i = 0; i < all * columns; i += PACK) PUT(sum_y, i, (ACCV)0);
    for (int r = 0; r < all; ++r) {
        PUT(sums, r * PACK, (ACCV)0);
        most[r] = -INFINITY;
    }
    const int keys = CAUSAL ? min(T, s0 + count) : T;
    for (int t = 0; t < keys; t += KEYS) {
        const int now = min(KEYS, (keys - t + WIDTH - 1) / WIDTH * WIDTH);
        ACC staged = 0;
        for (int c = 0; c < now; c += WIDTH) staged += stage_keys(k, k_s, kt + c * D, t + c, T, D);
        const ACC values = stage_rows(v + (size_t)t * v_s, v_s, vs, min(now, T - t), now, Dv, columns, (ACC)1);
#if MASK == 1
        // Upper bound of all scores, from the norms of queries and keys; NaN if a weight of zero would not hide a value.
        const ACC bound = sqrt(queries) * sqrt(staged) * (ACC)1.01 + values * 0;
#endif
        for (int r = 0; r < all; r += MR) {
            ACC keep[MR];
            int begin = 0, end = now;
#if MASK == 1
            find_seen(mask, mask_s, s0 + r, MR, S, t, T, now, most + r, bound, &begin, &end);
            if (begin == end) continue;
#endif
            for (int c = begin; c < end; c += WIDTH) score(qs + r * D, kt + c * D, p + c, D);
            #pragma unroll 1
            for (int i = 0; i < MR; ++i) {
                const int s = min(s0 + r + i, S - 1), seen = CAUSAL ? min(T, s + 1) : T;
                keep[i] = soften(p + i * KEYS + begin, end - begin, sums + (r + i) * PACK, most + r + i,
                                 mask + (size_t)s * mask_s, t + begin, T, seen, softcap);
            }
            local const ACC *weights = p + begin, *from = vs + begin * columns;
            int c = 0;
            for (; c + WIDTH <= columns; c += WIDTH)
                add_wide(weights, from + c, sum_y + r * columns + c, keep, columns, end - begin);
            if (c < columns) add_narrow(weights, from + c, sum_y + r * columns + c, keep, columns, end - begin);
        }
    }
    for (int r = 0; r < count; ++r) {
        const ACCV parts = GET(sums, r * PACK);
        const ACC total = SUM_LANES(parts), factor = total == (ACC)0 && !BLIND_NAN ? (ACC)0 : (ACC)1 / total;
        const bool zero = IS_ZERO(total);
        int c = 0;
        for (; c + PACK <= Dv; c += PACK)
            STOREV(y, r * y_s + c, zero ? (ACCV)0 : GET(sum_y, r * columns + c) * factor);
        for (; c < Dv; ++c) STORE(y, r * y_s + c, zero ? (ACC)0 : sum_y[r * columns + c] * factor);
    }
}
