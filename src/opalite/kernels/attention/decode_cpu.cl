// y[b,h,s] = sum_t softmax_t(cap(scale * q[b,h,s] . k[b,g,t]) + mask[b,h,s,t]) * v[b,g,t] (ops/attention.py) on CPUs, for
// few queries: the new tokens of a KV cache. One work-item takes all queries of the `sharing` heads that share
// the keys of head g, and `span` of these keys, each of which is read once, in place. With several PARTS of the keys
// (Dao et al. 2023, flash-decoding) a second kernel combines the partial results of the parts: the largest score, the sum of
// exponentials, and the weighted sum. Grid: (PARTS, heads of k, B), groups of one work-item.
//   MASK      0 none, 1 a mask whose elements are contiguous along t, 2 one element for all t
//   CAUSAL    query s sees the keys t <= s     SOFTCAP   cap(x) = softcap * tanh(x / softcap)
//   BYTES     of attention/blind_rows.cl: keys and values are int8
//   PARTS     parts of the keys; 1 writes y directly
//   EXPV, TANHV, EXP1    exp and tanh of ACCV, exp of ACC
//   work      local memory, see the pointers into it; columns is Dv rounded up to PACK
#include "attention/blind_rows.cl"
#include "include/reduce_lanes.cl"
#ifndef PARTS
#define PARTS 1
#define MASK 0
#define CAUSAL 0
#define SOFTCAP 0
#endif
#include "attention/cpu_lanes.cl"
#define NV 4
#define EACH_VECTOR _Pragma("unroll") for (int j = 0; j < NV; ++j)

// NAME(k, q, D): the dot product of a key of D elements with a query.
#define PRODUCT(NAME, ROW, GETV, GET1, SCALE) \
    static inline ACC NAME(ROW k, local const ACC *q, int D) { \
        ACCV sum = (ACCV)0; \
        int d = 0; \
        for (; d + PACK <= D; d += PACK) sum += GETV(k, d) * GET(q, d); \
        ACC total = SUM_LANES(sum); \
        for (; d < D; ++d) total += GET1(k, d) * q[d]; \
        return total * SCALE(k, D); \
    }
// NAME(v, step, weights, count, y, keep, Dv): y[Dv] = y * keep + the sum of `count` rows of v, `step` apart, each times its weight.
#define ADD_ROWS(NAME, ROW, GETV, GET1) \
    static inline void NAME(ROW v, int step, const ACC *weights, int count, local ACC *y, ACC keep, int Dv) { \
        int c = 0; \
        for (; c + NV * PACK <= Dv; c += NV * PACK) { \
            ACCV sum[NV]; \
            EACH_VECTOR sum[j] = GET(y, c + j * PACK) * keep; \
            for (int i = 0; i < count; ++i) { \
                ROW row = v + (size_t)i * step; \
                EACH_VECTOR sum[j] += (ACCV)weights[i] * GETV(row, c + j * PACK); \
            } \
            EACH_VECTOR PUT(y, c + j * PACK, sum[j]); \
        } \
        for (; c + PACK <= Dv; c += PACK) { \
            ACCV sum = GET(y, c) * keep; \
            for (int i = 0; i < count; ++i) sum += (ACCV)weights[i] * GETV(v + (size_t)i * step, c); \
            PUT(y, c, sum); \
        } \
        for (; c < Dv; ++c) { \
            ACC sum = y[c] * keep; \
            for (int i = 0; i < count; ++i) sum += weights[i] * GET1(v + (size_t)i * step, c); \
            y[c] = sum; \
        } \
    }
PRODUCT(product, global const KV *, WIDEV_KV, WIDE_KV, SCALE_KV)
ADD_ROWS(add_rows, global const KV *, WIDEV_KV, WIDE_KV)
#if BYTES
#define HELD(p, i) ((p)[i])
#define AS_IT_IS(row, n) ((ACC)1)
PRODUCT(product_wide, local const ACC *, GET, HELD, AS_IT_IS)
ADD_ROWS(add_wide, local const ACC *, GET, HELD)

// Converts a row of n int8 to floats, for all queries that share it.
static inline void widen_row(global const KV *x, local ACC *to, int n) {
    const ACC scale = SCALE_KV(x, n);
    int d = 0;
    for (; d + PACK <= n; d += PACK) PUT(to, d, WIDEV_KV(x, d) * scale);
    for (; d < n; ++d) to[d] = WIDE_KV(x, d) * scale;
}
#endif

__attribute__((reqd_work_group_size(1, 1, 1)))
kernel void attention_few(global const REAL *restrict q, global const KV *restrict k,
                          global const KV *restrict v, global const MASK_REAL *restrict mask, global REAL *restrict y,
                          global ACC *restrict left, int batches, int heads, int sharing, int S, int T, int D, int Dv,
                          PLACES, int mask_b, int mask_h, int mask_s, int span, ACC scale, ACC softcap,
                          local ACC *work) {
    const int part = get_global_id(0), g = get_global_id(1), b = get_global_id(2);
    if (part >= PARTS || g * sharing >= heads || b >= batches) return;
    const int rows = sharing * S, begin = min(part * span, T), end = min(begin + span, T);
    const int columns = (Dv + PACK - 1) / PACK * PACK;
    k = HEAD(k, b, g);
    v = HEAD(v, b, g);
    mask += (size_t)b * mask_b;
    local ACC *qs = work;                    // [rows][D], scaled
    local ACC *sum_y = qs + rows * D;        // [rows][columns]
    local ACC *sum = sum_y + rows * columns; // [rows], of exponentials
    local ACC *most = sum + rows;            // [rows], the largest score so far

#if BYTES
    local ACC *wide_k = most + rows;         // [PACK][D], if there are several rows
    local ACC *wide_v = wide_k + PACK * D;   // [PACK][columns]
#endif

    for (int r = 0; r < rows; ++r) {
        global const REAL *x = HEAD(q, b, g * sharing + r / S) + (size_t)(r % S) * q_s;
        for (int d = 0; d < D; ++d) qs[r * D + d] = LOAD(x, d) * scale;
        for (int c = 0; c < columns; ++c) sum_y[r * columns + c] = 0;
        sum[r] = 0;
        most[r] = -INFINITY;
    }
    for (int t = begin; t < end; t += PACK) {
        const int count = min(PACK, end - t);
#if BYTES
        for (int i = 0; rows > 1 && i < count; ++i) {
            widen_row(k + (size_t)(t + i) * k_s, wide_k + i * D, D);
            widen_row(v + (size_t)(t + i) * v_s, wide_v + i * columns, Dv);
        }
#endif
        for (int r = 0; r < rows; ++r) {
            const int s = r % S, seen = CAUSAL ? min(end, s + 1) : end;
            if (t >= seen) continue;
            ACC lanes[PACK];
            for (int i = 0; i < count; ++i)
#if BYTES
                if (rows > 1) lanes[i] = product_wide(wide_k + i * D, qs + r * D, D);
                else
#endif
                    lanes[i] = product(k + (size_t)(t + i) * k_s, qs + r * D, D);
            for (int i = count; i < PACK; ++i) lanes[i] = 0;
            ACCV x = VLOAD(PACK, 0, lanes);
#if SOFTCAP
            x = TANHV(x / softcap) * softcap;
#endif
#if MASK
            x += mask_lanes(mask + (size_t)(g * sharing + r / S) * mask_h + (size_t)s * mask_s, t, T);
#endif
            if (t + PACK > seen) x = FIRST_LANES(seen - t) ? x : (ACCV)(-INFINITY);
            const ACC before = most[r], largest = LARGER(FOLD_LANES(LARGER, x), before);
            // A row without a visible key so far stays at zero.
            const ACC shift = largest == (ACC)(-INFINITY) ? (ACC)0 : largest, keep = EXP1(before - shift);
            x = EXPV(x - shift);
            sum[r] = sum[r] * keep + SUM_LANES(x);
            most[r] = largest;
            VSTORE(PACK, x, 0, lanes);
#if BYTES
            if (rows > 1) {
                add_wide(wide_v, columns, lanes, count, sum_y + r * columns, keep, Dv);
                continue;
            }
            for (int i = 0; i < count; ++i) lanes[i] *= SCALE_KV(v + (size_t)(t + i) * v_s, Dv);
#endif
            add_rows(v + (size_t)t * v_s, v_s, lanes, count, sum_y + r * columns, keep, Dv);
        }
    }
    for (int r = 0; r < rows; ++r) {
        const int h = g * sharing + r / S, s = r % S;
#if PARTS == 1
        const ACC total = sum[r], factor = total == (ACC)0 && !BLIND_NAN ? (ACC)0 : (ACC)1 / total;
        global REAL *out = HEAD(y, b, h) + (size_t)s * y_s;
        for (int c = 0; c < Dv; ++c) STORE(out, c, IS_ZERO(total) ? (ACC)0 : sum_y[r * columns + c] * factor);
#else
        global ACC *out = left + ((((size_t)b * heads + h) * S + s) * PARTS + part) * (Dv + 2);
        out[0] = most[r];
        out[1] = sum[r];
        for (int c = 0; c < Dv; ++c) out[2 + c] = sum_y[r * columns + c];
#endif
    }
}

// Combines the PARTS of query s of a head to y. Grid: (S, H, B), groups of one work-item.
__attribute__((reqd_work_group_size(1, 1, 1)))
kernel void join_parts(global const ACC *restrict left, global REAL *restrict y, int batches, int heads, int S, int Dv,
                       PLACE_OF(y)) {
    const int s = get_global_id(0), h = get_global_id(1), b = get_global_id(2);
    if (s >= S || h >= heads || b >= batches) return;
    left += (((size_t)b * heads + h) * S + s) * PARTS * (Dv + 2);
    ACC largest = -INFINITY, total = 0, share[PARTS];
    for (int p = 0; p < PARTS; ++p) largest = fmax(largest, left[p * (Dv + 2)]);
    for (int p = 0; p < PARTS; ++p) {
        const ACC most = left[p * (Dv + 2)];
        share[p] = most == (ACC)(-INFINITY) ? (ACC)0 : exp(most - largest);
        // A NaN score of a part is propagated.
        total += left[p * (Dv + 2) + 1] * (isnan(left[p * (Dv + 2) + 1]) ? (ACC)1 : share[p]);
    }
    const ACC factor = total == (ACC)0 && !BLIND_NAN ? (ACC)0 : (ACC)1 / total;
    y = HEAD(y, b, h) + (size_t)s * y_s;
    for (int c = 0; c < Dv; ++c) {
        ACC sum = 0;
        for (int p = 0; p < PARTS; ++p) sum += left[p * (Dv + 2) + 2 + c] * share[p];
        STORE(y, c, IS_ZERO(total) ? (ACC)0 : sum * factor);
    }
}
