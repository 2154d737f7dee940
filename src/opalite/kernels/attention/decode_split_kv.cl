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
#define LOADS_K ((KEYS + SLOTS_K - 1) / SLOTS_K)
#define LOADS_V ((KEYS + SLOTS_V - 1) / SLOTS_V)
#define OWN (ROWS * KEYS / WG)      // scores of a work-item
#define CHUNK (KEYS < 16 ? KEYS : 16)  // keys whose largest score one work-item finds
#define CHUNKS (KEYS / CHUNK)
#define PITCH (LANES_K | 1)         // odd, so that columns have no bank conflicts
#define ACC4 VEC_T(ACC, 4)
#if BYTES == 2
#define SCALED_V(t) * SCALE_KV(v - lane_v * PACK + (size_t)(t) * v_s, DV)
#else
#define SCALED_V(t)
#endif
#define UNROLL _Pragma("unroll")
#define EACH_ROW UNROLL for (int r = 0; r < ROWS; ++r)

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
    local ACC dots[ROWS * KEYS * PITCH], p[ROWS * KEYS], tops[ROWS * CHUNKS], ends[SLOTS_V * DV];
    const int item = get_local_id(0), part = get_group_id(0), rows = sharing * S, blocks = (rows + ROWS - 1) / ROWS;
    const int g = get_group_id(1) / blocks, r0 = get_group_id(1) % blocks * ROWS, b = get_group_id(2);
    const int begin = min(part * span, T), end = min(begin + span, T);
    const int lane_k = item % LANES_K, slot_k = item / LANES_K, lane_v = item % LANES_V, slot_v = item / LANES_V;
    k = HEAD(k, b, g) + lane_k * PACK;
    v = HEAD(v, b, g) + lane_v * PACK;
    mask += (size_t)b * mask_b;

    ACCV own[ROWS], sum_y[ROWS];
    ACC most[ROWS], sum[OWN];
    EACH_ROW {
        const int row = min(r0 + r, rows - 1);
        global const REAL *x = HEAD(q, b, g * sharing + row / S) + (size_t)(row % S) * q_s;
        own[r] = LOADV(x, lane_k * PACK) * scale;
        sum_y[r] = (ACCV)0;
        most[r] = -INFINITY;
    }
    UNROLL for (int i = 0; i < OWN; ++i) sum[i] = 0;
    for (int t0 = begin; t0 < end; t0 += KEYS) {
        // All loads of an iteration are in flight together.
        ACCV ks[LOADS_K], vs[LOADS_V];
        UNROLL for (int i = 0; i < LOADS_K; ++i) {
            const int at = slot_k + i * SLOTS_K;
            ks[i] = WIDEV_KV(k, (size_t)min(t0 + at, end - 1) * k_s);
        }
        UNROLL for (int i = 0; i < LOADS_V; ++i) {
            const int t = min(t0 + slot_v + i * SLOTS_V, end - 1);
            vs[i] = WIDEV_KV(v, (size_t)t * v_s) SCALED_V(t);
        }
        UNROLL for (int i = 0; i < LOADS_K; ++i) {
            const int at = slot_k + i * SLOTS_K;
            if (slot_k < SLOTS_K && at < KEYS) EACH_ROW dots[(r * KEYS + at) * PITCH + lane_k] = product(own[r], ks[i]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        ACC score[OWN];
        UNROLL for (int i = 0; i < OWN; ++i) {
            const int e = item + i * WG, t = t0 + e % KEYS, row = min(r0 + e / KEYS, rows - 1), s = row % S;
            ACC x = -INFINITY;
            if (t < end && (!CAUSAL || t <= s)) {
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
            p[e] = score[i] = x;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int e = item; e < ROWS * CHUNKS; e += WG) {
            ACC top = p[e * CHUNK];
            UNROLL for (int i = 1; i < CHUNK; ++i) top = fmax(top, p[e * CHUNK + i]);
            tops[e] = top;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        ACC shift[ROWS], keep[ROWS];
        EACH_ROW {
            ACC top = most[r];
            UNROLL for (int i = 0; i < CHUNKS; ++i) top = fmax(top, tops[r * CHUNKS + i]);
            // A row without a visible key so far stays at zero.
            shift[r] = top == (ACC)(-INFINITY) ? (ACC)0 : top;
            keep[r] = exp(most[r] - shift[r]);
            most[r] = top;
            sum_y[r] *= keep[r];
        }
        UNROLL for (int i = 0; i < OWN; ++i) {
            const int row = (item + i * WG) / KEYS;
            ACC by = shift[0], kept = keep[0];
            EACH_ROW if (r == row) by = shift[r], kept = keep[r];
            const ACC e = exp(score[i] - by);
            sum[i] = sum[i] * kept + e;
            p[item + i * WG] = e;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        UNROLL for (int i = 0; i < LOADS_V; ++i) {
            const int at = slot_v + i * SLOTS_V;
            if (slot_v < SLOTS_V && at < KEYS && t0 + at < end) EACH_ROW sum_y[r] += vs[i] * p[r * KEYS + at];
        }
    }
    // Each work-item summed the exponentials of its own keys.
    barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL for (int i = 0; i < OWN; ++i) p[item + i * WG] = sum[i];
    EACH_ROW {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (slot_v < SLOTS_V)
            for (int i = 0; i < PACK; ++i) ends[slot_v * DV + lane_v * PACK + i] = ((const ACC *)&sum_y[r])[i];
        barrier(CLK_LOCAL_MEM_FENCE);
        if (r0 + r >= rows) continue;
        ACC all = 0;
        for (int i = 0; i < KEYS; ++i) all += p[r * KEYS + i];
        const int h = g * sharing + (r0 + r) / S, s = (r0 + r) % S;
#if PARTS == 1
        const ACC factor = all == (ACC)0 && !BLIND_NAN ? (ACC)0 : (ACC)1 / all;
        global REAL *out = HEAD(y, b, h) + (size_t)s * y_s;
#else
        global ACC *out = left + ((((size_t)b * heads + h) * S + s) * PARTS + part) * (DV + 2);
        if (item == 0) {
            out[0] = most[r];
            out[1] = all;
        }
#endif
        for (int c = item; c < DV; c += WG) {
            ACC total = 0;
            for (int i = 0; i < SLOTS_V; ++i) total += ends[i * DV + c];
#if PARTS == 1
            STORE(out, c, IS_ZERO(all) ? (ACC)0 : total * factor);
#else
            out[2 + c] = total;
#endif
        }
    }
}
