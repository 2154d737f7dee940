// y[b,h,s] = sum_t softmax_t(cap(scale * q[b,h,s] . k[b,g,t]) + mask[b,h,s,t]) * v[b,g,t] (ops/attention.py) on GPUs, in floats. A
// work-group of TX x TY work-items takes BQ = TY * RM queries of one head through blocks of BK = TX * KN keys. Whole heads are in local
// memory, as vectors of 4; a work-item has the scores of RM queries and KN keys in registers, and the sums of these queries
// for CV vectors of columns. Online softmax (Milakov and Gimelshein 2018, Dao et al. 2022), in powers of two: `scale` and `softcap`
// include log2(e). Grid: (ceil(S / BQ) * PARTS * TX * TY, H, B).
//   TILES     2: keys and values have memory of their own, and exponentials take the place of keys; 1: values take it, for long heads
//   PARTS     groups that share the keys of a row (Dao et al. 2023, flash-decoding), `span` keys each; a second launch
//             (attention/join_parts.cl) combines their results
//   D, DV     elements of a row of q and k, and of v and y
//   ALIGNED   all rows begin at multiples of 4 elements and end at one
//   MASK, CAUSAL, SOFTCAP   as in attention/flash_cpu.cl
#include "attention/blind_rows.cl"
#ifndef TX
#define TX 8
#define TY 8
#define RM 8
#define KN 6
#define D 64
#define DV 64
#define ALIGNED 1
#define TILES 2
#define PARTS 1
#define MASK 0
#define CAUSAL 0
#define SOFTCAP 0
#endif
#define BQ (TY * RM)
#define BK (TX * KN)
#define ITEMS (TX * TY)
#define D4 ((D + 3) / 4)
#define DV4 ((DV + 3) / 4)
#define CV ((DV4 + TX - 1) / TX)
// Vectors from a row to the next: odd, so that eight rows have no bank conflicts.
#define PITCH (D4 | 1)
#define PITCH_P (BK / 4 | 1)
#define LARGER_OF(a, b) ((a) > (b) ? (a) : (b))
#define KEY_VECTORS LARGER_OF(BK * PITCH, TILES == 2 ? BQ * PITCH_P : BK * DV4)
#define SECOND_VECTORS (TILES == 2 ? BK * DV4 : BQ * PITCH_P)
#define LOG2_E 1.44269504f
// The lowest floats stay finite if multiplied by this, so that a query without a visible key weighs all keys equally.
#define FINITE(m) ((m) < -2e38f && (m) > -INFINITY ? -2e38f : (m))

// Elements 4 * i to 4 * i + 3 of a row of n at p.
#if ALIGNED && STORAGE == 0
#define ROW_VECTOR(p, i, n) (*(global const float4 *)((p) + (i) * 4))
#elif ALIGNED
#define ROW_VECTOR(p, i, n) ((float4)(LOAD(p, (i) * 4), LOAD(p, (i) * 4 + 1), LOAD(p, (i) * 4 + 2), LOAD(p, (i) * 4 + 3)))
#else
#define CELL(p, at, n) ((at) < (n) ? LOAD(p, at) : 0.0f)
#define ROW_VECTOR(p, i, n) \
    ((float4)(CELL(p, (i) * 4, n), CELL(p, (i) * 4 + 1, n), CELL(p, (i) * 4 + 2, n), CELL(p, (i) * 4 + 3, n)))
#endif
#if PARTS == 1
#define PUT(p, i, v) STORE(p, i, v)
#else
#define PUT(p, i, v) (p)[i] = (v)
#endif
#define UNROLL _Pragma("unroll")
#define LOAD_VALUES \
    _Pragma("unroll 4") for (int e0 = 0; e0 < BK * DV4; e0 += ITEMS) { \
        const int e = e0 + item, t = t0 + e / DV4; \
        if (BK * DV4 % ITEMS == 0 || e < BK * DV4) v_tile[e] = t < T ? ROW_VECTOR(v + t * v_s, e % DV4, DV) : (float4)(0); \
    }

__attribute__((reqd_work_group_size(ITEMS, 1, 1)))
kernel void attention_flash(global const REAL *restrict q, global const REAL *restrict k, global const REAL *restrict v,
                            global const MASK_REAL *restrict mask, global REAL *restrict y, global float *restrict left,
                            int batches, int heads, int sharing, int S, int T, int size, int columns, PLACES, int mask_b,
                            int mask_h, int mask_s, int span, float scale, float softcap) {
    local float4 q_tile[BQ * PITCH], k_tile[KEY_VECTORS], second[SECOND_VECTORS];
    local float tops[BQ * (TX + 1)];
    local float4 *const v_tile = TILES == 2 ? second : k_tile, *const p_tile = TILES == 2 ? k_tile : second;
    const int item = get_local_id(0), tx = item % TX, ty = item / TX;
    const int blocks = (S + BQ - 1) / BQ, part = PARTS == 1 ? 0 : get_group_id(0) / blocks;
    const int id = PARTS == 1 ? get_group_id(0) : get_group_id(0) % blocks;
    const int block = CAUSAL ? blocks - 1 - id : id;  // the longest first
    const int s0 = block * BQ, h = get_group_id(1), b = get_group_id(2);
    q = HEAD(q, b, h);
    k = HEAD(k, b, h / sharing);
    v = HEAD(v, b, h / sharing);
    y = HEAD(y, b, h);
    mask += (size_t)b * mask_b + (size_t)h * mask_h;

    for (int e = item; e < BQ * D4; e += ITEMS)
        q_tile[e / D4 * PITCH + e % D4] = ROW_VECTOR(q + min(s0 + e / D4, S - 1) * q_s, e % D4, D);
    float sum[RM], most[RM];
    float4 sum_y[RM][CV];
    UNROLL for (int i = 0; i < RM; ++i) {
        sum[i] = 0;
        most[i] = -INFINITY;
        UNROLL for (int c = 0; c < CV; ++c) sum_y[i][c] = (float4)(0);
    }
    const int begin = PARTS == 1 ? 0 : part * span, all = CAUSAL ? min(T, s0 + BQ) : T, keys = PARTS == 1 ? all : min(begin + span, all);
    for (int t0 = begin; t0 < keys; t0 += BK) {
        _Pragma("unroll 4") for (int e0 = 0; e0 < BK * D4; e0 += ITEMS) {
            const int e = e0 + item, t = t0 + e / D4;
            if (BK * D4 % ITEMS == 0 || e < BK * D4)
                k_tile[e / D4 * PITCH + e % D4] = t < T ? ROW_VECTOR(k + t * k_s, e % D4, D) : (float4)(0);
        }
        if (TILES == 2) LOAD_VALUES;
        barrier(CLK_LOCAL_MEM_FENCE);
        float score[RM][KN];
        UNROLL for (int i = 0; i < RM; ++i)
            UNROLL for (int j = 0; j < KN; ++j) score[i][j] = 0;
        #pragma unroll 2
        for (int d = 0; d < D4; ++d) {
            float4 ks[KN];
            UNROLL for (int j = 0; j < KN; ++j) ks[j] = k_tile[(tx + j * TX) * PITCH + d];
            UNROLL for (int i = 0; i < RM; ++i) {
                const float4 x = q_tile[(ty + i * TY) * PITCH + d];
                UNROLL for (int j = 0; j < KN; ++j) {
                    score[i][j] += x.x * ks[j].x;
                    score[i][j] += x.y * ks[j].y;
                    score[i][j] += x.z * ks[j].z;
                    score[i][j] += x.w * ks[j].w;
                }
            }
        }
        UNROLL for (int i = 0; i < RM; ++i) {
            const int s = min(s0 + ty + i * TY, S - 1), seen = CAUSAL ? min(keys, s + 1) : keys;
            float top = -INFINITY;
            UNROLL for (int j = 0; j < KN; ++j) {
                const int t = t0 + tx + j * TX;
                float x = score[i][j] * scale;
#if SOFTCAP
                x = tanh(x / softcap) * softcap;
#endif
#if MASK
                if (t < T) x += FINITE(LOAD_MASK(mask, s * mask_s + (MASK == 1 ? t : 0))) * LOG2_E;
#endif
                score[i][j] = t < seen ? x : -INFINITY;
                top = fmax(top, score[i][j]);
            }
            tops[(ty + i * TY) * (TX + 1) + tx] = top;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (TILES == 1) LOAD_VALUES;
        UNROLL for (int i = 0; i < RM; ++i) {
            float largest = most[i];
            UNROLL for (int n = 0; n < TX; ++n) largest = fmax(largest, tops[(ty + i * TY) * (TX + 1) + n]);
            // A row without a visible key so far stays at zero.
            const float shift = largest == -INFINITY ? 0.0f : largest, keep = exp2(most[i] - shift);
            most[i] = largest;
            sum[i] *= keep;
            UNROLL for (int c = 0; c < CV; ++c) sum_y[i][c] *= keep;
            UNROLL for (int j = 0; j < KN; ++j) {
                const float e = exp2(score[i][j] - shift);
                sum[i] += e;
                ((local float *)p_tile)[(ty + i * TY) * (PITCH_P * 4) + tx + j * TX] = e;
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int n = 0; n < BK / 4; ++n) {
            float4 p[RM];
            UNROLL for (int i = 0; i < RM; ++i) p[i] = p_tile[(ty + i * TY) * PITCH_P + n];
            UNROLL for (int o = 0; o < 4; ++o) {
                float4 vs[CV];
                UNROLL for (int c = 0; c < CV; ++c)
                    vs[c] = v_tile[(n * 4 + o) * DV4 + (DV4 % TX == 0 ? tx + c * TX : min(tx + c * TX, DV4 - 1))];
                UNROLL for (int i = 0; i < RM; ++i) {
                    const float weight = o == 0 ? p[i].x : o == 1 ? p[i].y : o == 2 ? p[i].z : p[i].w;
                    UNROLL for (int c = 0; c < CV; ++c) sum_y[i][c] += weight * vs[c];
                }
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    // Each work-item summed the exponentials of its own keys.
    UNROLL for (int i = 0; i < RM; ++i) tops[(ty + i * TY) * (TX + 1) + tx] = sum[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL for (int i = 0; i < RM; ++i) {
        const int s = s0 + ty + i * TY;
        if (s >= S) continue;
        float total = 0;
        for (int n = 0; n < TX; ++n) total += tops[(ty + i * TY) * (TX + 1) + n];
        const bool is_zero = PARTS == 1 && (IS_ZERO(total) || (total == 0 && !BLIND_NAN));
        const float factor = PARTS == 1 ? 1 / total : 1;
#if PARTS == 1
        global REAL *out = y + s * y_s;
#else
        global float *out = left + ((((size_t)b * heads + h) * S + s) * PARTS + part) * (DV + 2) + 2;
        if (tx == 0) out[-2] = most[i] / LOG2_E, out[-1] = total;
#endif
        UNROLL for (int c = 0; c < CV; ++c) {
            const int at = (tx + c * TX) * 4;
            if (at >= DV) continue;
            const float4 found = is_zero ? (float4)(0) : sum_y[i][c] * factor;
#if ALIGNED && STORAGE == 0 && PARTS == 1
            *(global float4 *)(out + at) = found;
#else
            PUT(out, at, found.x);
            if (at + 1 < DV) PUT(out, at + 1, found.y);
            if (at + 2 < DV) PUT(out, at + 2, found.z);
            if (at + 3 < DV) PUT(out, at + 3, found.w);
#endif
        }
    }
}
