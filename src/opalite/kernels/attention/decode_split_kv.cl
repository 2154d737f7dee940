// y[b,h,s] = sum_t softmax_t(cap(scale * q[b,h,s] . k[b,g,t]) + mask[b,h,s,t]) * v[b,g,t] (ops/attention.py) on GPUs, for
// few queries: the new tokens of a KV cache. A work-group takes ROWS of the queries of the `sharing` heads that
// share the keys of head g, and `span` of these keys. Per iteration of KEYS keys, each key is read once, by D / PACK work-items
// with PACK elements each; online softmax (Milakov and Gimelshein 2018). With several PARTS of the
// keys (Dao et al. 2023, flash-decoding) a second kernel combines the partial results of the parts: the largest score, the sum of
// exponentials, and the weighted sum. Grid: (PARTS * WG, heads of k * ceil(rows / ROWS), B).
//   MASK, CAUSAL, SOFTCAP   as in attention/tiled_gpu.cl
//   BYTES     of attention/blind_rows.cl: keys and values are int8
//   D, DV     elements of a row of q and k, and of v and y, multiples of PACK
#include "attention/blind_rows.cl"
#ifndef WG
#define WG 64
#define KEYS 32
#define ROWS 1
#define PARTS 1
#define D 64
#define DV 64
#define MASK 0
#define CAUSAL 0
#define SOFTCAP 0
#endif
#define LANES_K (D / PACK)
#define LANES_V (DV / PACK)
#define SLOTS_K (WG / LANES_K)
#define SLOTS_V (WG / LANES_V)
#define PITCH (LANES_K | 1)  // odd, so that columns have no bank conflicts
#define ACC4 VEC_T(ACC, 4)
#if BYTES == 2
#define SCALED_V(i) * SCALE_KV(v - lane_v * PACK + (size_t)(t0 + (i)) * v_s, DV)
#else
#define SCALED_V(i)
#endif
#define EACH_ROW _Pragma("unroll") for (int r = 0; r < ROWS; ++r)

static inline ACC product(ACCV a, ACCV b) {
    const ACCV c = a * b;
    ACC sum = 0;
    for (int i = 0; i < PACK; ++i) sum += ((const ACC *)&c)[i];
    return sum;
}

__attribute__((reqd_work_group_size(WG, 1, 1)))
kernel void attention_split(global const REAL *restrict q, global const KV *restrict k, global const KV *restrict v,
                            global const MASK_REAL *restrict mask, global REAL *restrict y, global ACC *restrict left,
                            int batches, int heads, int sharing, int S, int T, int size, int columns, PLACES, int mask_b,
                            int mask_h, int mask_s, int span, ACC scale, ACC softcap) {
    local ACC dots[ROWS * KEYS * PITCH], p[ROWS * KEYS], ends[SLOTS_V * DV];
    const int item = get_local_id(0), part = get_group_id(0), rows = sharing * S, blocks = (rows + ROWS - 1) / ROWS;
    const int g = get_group_id(1) / blocks, r0 = get_group_id(1) % blocks * ROWS, b = get_group_id(2);
    const int begin = min(part * span, T), end = min(begin + span, T);
    const int lane_k = item % LANES_K, slot_k = item / LANES_K, lane_v = item % LANES_V, slot_v = item / LANES_V;
    k = HEAD(k, b, g) + lane_k * PACK;
    v = HEAD(v, b, g) + lane_v * PACK;
    mask += (size_t)b * mask_b;

    ACCV own[ROWS], sum_y[ROWS];
    ACC sum[ROWS], most[ROWS];
    EACH_ROW {
        const int row = min(r0 + r, rows - 1);
        global const REAL *x = HEAD(q, b, g * sharing + row / S) + (size_t)(row % S) * q_s;
        own[r] = LOADV(x, lane_k * PACK) * scale;
        sum_y[r] = (ACCV)0;
        sum[r] = 0;
        most[r] = -INFINITY;
    }
    for (int t0 = begin; t0 < end; t0 += KEYS) {
        const int count = min(KEYS, end - t0);
        if (slot_k < SLOTS_K)
            #pragma unroll 4
            for (int i = slot_k; i < count; i += SLOTS_K) {
                const ACCV x = WIDEV_KV(k, (size_t)(t0 + i) * k_s);
                EACH_ROW dots[(r * KEYS + i) * PITCH + lane_k] = product(own[r], x);
            }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int e = item; e < ROWS * KEYS; e += WG) {
            const int i = e % KEYS, row = min(r0 + e / KEYS, rows - 1), s = row % S, t = t0 + i;
            ACC x = -INFINITY;
            if (i < count && (!CAUSAL || t <= s)) {
                x = 0;
                for (int l = 0; l < LANES_K; ++l) x += dots[e * PITCH + l];
#if BYTES == 2
                x *= SCALE_KV(k - lane_k * PACK + (size_t)t * k_s, D);
#endif
#if SOFTCAP
                x = tanh(x / softcap) * softcap;
#endif
#if MASK
                const size_t line = (size_t)(g * sharing + row / S) * mask_h + (size_t)s * mask_s;
                x += LOAD_MASK(mask, line + (MASK == 1 ? t : 0));
#endif
            }
            p[e] = x;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        ACC shift[ROWS];
        EACH_ROW {
            const ACC before = most[r];
            ACC4 tops = (ACC4)before;
            #pragma unroll 4
            for (int i = 0; i < KEYS; i += 4) tops = fmax(tops, VLOAD(4, i, p + r * KEYS));
            most[r] = fmax(fmax(tops.x, tops.y), fmax(tops.z, tops.w));
            // A row without a visible key so far stays at zero.
            shift[r] = most[r] == (ACC)(-INFINITY) ? (ACC)0 : most[r];
            const ACC keep = exp(before - shift[r]);
            sum[r] *= keep;
            sum_y[r] *= keep;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int e = item; e < ROWS * KEYS; e += WG) {
            ACC by = shift[0];
            EACH_ROW if (r == e / KEYS) by = shift[r];
            p[e] = exp(p[e] - by);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        EACH_ROW {
            ACC4 sums = (ACC4)0;
            #pragma unroll 4
            for (int i = 0; i < KEYS; i += 4) sums += VLOAD(4, i, p + r * KEYS);
            sum[r] += sums.x + sums.y + sums.z + sums.w;
        }
        if (slot_v < SLOTS_V)
            #pragma unroll 4
            for (int i = slot_v; i < count; i += SLOTS_V) {
                const ACCV x = WIDEV_KV(v, (size_t)(t0 + i) * v_s) SCALED_V(i);
                EACH_ROW sum_y[r] += x * p[r * KEYS + i];
            }
    }
    EACH_ROW {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (slot_v < SLOTS_V)
            for (int i = 0; i < PACK; ++i) ends[slot_v * DV + lane_v * PACK + i] = ((const ACC *)&sum_y[r])[i];
        barrier(CLK_LOCAL_MEM_FENCE);
        if (r0 + r >= rows) continue;
        const int h = g * sharing + (r0 + r) / S, s = (r0 + r) % S;
#if PARTS == 1
        const ACC factor = sum[r] == (ACC)0 && !BLIND_NAN ? (ACC)0 : (ACC)1 / sum[r];
        global REAL *out = HEAD(y, b, h) + (size_t)s * y_s;
#else
        global ACC *out = left + ((((size_t)b * heads + h) * S + s) * PARTS + part) * (DV + 2);
        if (item == 0) {
            out[0] = most[r];
            out[1] = sum[r];
        }
#endif
        for (int c = item; c < DV; c += WG) {
            ACC total = 0;
            for (int i = 0; i < SLOTS_V; ++i) total += ends[i * DV + c];
#if PARTS == 1
            STORE(out, c, IS_ZERO(sum[r]) ? (ACC)0 : total * factor);
#else
            out[2 + c] = total;
#endif
        }
    }
}

// Combines the PARTS of query s of a head to y. Grid: (S * JOIN, H, B), groups of JOIN work-items.
#ifndef JOIN
#define JOIN 32
#endif
__attribute__((reqd_work_group_size(JOIN, 1, 1)))
kernel void join_split(global const ACC *restrict left, global REAL *restrict y, int batches, int heads, int S, int columns,
                       PLACE_OF(y)) {
    const int s = get_group_id(0), h = get_group_id(1), b = get_group_id(2);
    left += (((size_t)b * heads + h) * S + s) * PARTS * (DV + 2);
    ACC largest = -INFINITY, total = 0, share[PARTS];
    #pragma unroll
    for (int i = 0; i < PARTS; ++i) share[i] = left[i * (DV + 2)];
    #pragma unroll
    for (int i = 0; i < PARTS; ++i) largest = fmax(largest, share[i]);
    #pragma unroll
    for (int i = 0; i < PARTS; ++i) {
        share[i] = share[i] == (ACC)(-INFINITY) ? (ACC)0 : exp(share[i] - largest);
        const ACC own = left[i * (DV + 2) + 1];
        total += own * (isnan(own) ? (ACC)1 : share[i]);  // a NaN score of a part is propagated
    }
    const ACC factor = total == (ACC)0 && !BLIND_NAN ? (ACC)0 : (ACC)1 / total;
    y = HEAD(y, b, h) + (size_t)s * y_s;
    for (int c = get_local_id(0); c < DV; c += JOIN) {
        ACC sum = 0;
        #pragma unroll
        for (int i = 0; i < PARTS; ++i) sum += left[i * (DV + 2) + 2 + c] * share[i];
        STORE(y, c, IS_ZERO(total) ? (ACC)0 : sum * factor);
    }
}
