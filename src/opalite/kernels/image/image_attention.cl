// y[b,h,s] = sum_t softmax_t(cap(scale * q[b,h,s] . k[b,g,t]) + mask[b,h,s,t]) * v[b,g,t] (ops/attention.py), of q, k
// and v held as images whose texels lie along rows; y is a row-major buffer. A work-group of TX x TY work-items takes
// TY * RM queries of one head through blocks of TX * KN keys. Texels are read where they are needed, once for all
// queries of a work-item; only the weights of a block pass through local memory, with online softmax as in
// attention/tiled_gpu.cl.
// Grid: (TX * ceil(S / (TY * RM)), TY * H, B * parts).
//   RM, KN   queries and keys of one work-item     OWN   texels of a row of y that one work-item sums
//   MASK, CAUSAL, SOFTCAP   as in attention/flash_cpu.cl
#include "attention/blind_rows.cl"
#ifndef TX
#define TX 8
#define TY 8
#define RM 2
#define KN 2
#define OWN 1
#define MASK 0
#define CAUSAL 0
#define SOFTCAP 0
#endif
#define BQ (TY * RM)
#define BK (TX * KN)
#define PITCH (BK + 1)
// Texel d of row s of head h of batch b of q is at (q_x + b * q_bx + h * q_hx + d, q_y + b * q_by + h * q_hy + s * q_sy).
#define TEXELS_OF(x) int x##_x, int x##_y, int x##_bx, int x##_by, int x##_hx, int x##_hy, int x##_sy
#define X_OF(x, b, h) (x##_x + (b) * x##_bx + (h) * x##_hx)
#define Y_OF(x, b, h) (x##_y + (b) * x##_by + (h) * x##_hy)

__attribute__((reqd_work_group_size(TX, TY, 1)))
kernel void image_attention(read_only image2d_t q, read_only image2d_t k, read_only image2d_t v,
                            global const MASK_REAL *restrict mask, global REAL *restrict y, int heads, int sharing, int S,
                            int T, int texels_q, int texels_v, TEXELS_OF(q), TEXELS_OF(k), TEXELS_OF(v), PLACE_OF(y),
                            int mask_b, int mask_h, int mask_s, int parts, float scale, float softcap) {
    local float weights[BQ * PITCH];
    const int tx = get_local_id(0), ty = get_local_id(1);
    const int s0 = get_group_id(0) * BQ, h = get_group_id(1), b = get_group_id(2) / parts;
    const int c0 = get_group_id(2) % parts * TX * OWN + tx, own_row = ty * RM;
    const int xq = X_OF(q, b, h), yq = Y_OF(q, b, h), g = h / sharing;
    const int xk = X_OF(k, b, g), yk = Y_OF(k, b, g), xv = X_OF(v, b, g), yv = Y_OF(v, b, g);
    y = HEAD(y, b, h);
    mask += (size_t)b * mask_b + (size_t)h * mask_h;

    float4 sum_y[RM][OWN];
    float sum[RM], most[RM];
    #pragma unroll
    for (int i = 0; i < RM; ++i) {
        sum[i] = 0;
        most[i] = -INFINITY;
        #pragma unroll
        for (int c = 0; c < OWN; ++c) sum_y[i][c] = (float4)0;
    }
    const int keys = CAUSAL ? min(T, s0 + BQ) : T;
    for (int t0 = 0; t0 < keys; t0 += BK) {
        float score[RM][KN];
        #pragma unroll
        for (int i = 0; i < RM; ++i)
            #pragma unroll
            for (int n = 0; n < KN; ++n) score[i][n] = 0;
        for (int d = 0; d < texels_q; ++d) {
            float4 qv[RM], kv[KN];
            #pragma unroll
            for (int i = 0; i < RM; ++i) qv[i] = READ(q, xq + d, yq + min(s0 + own_row + i, S - 1) * q_sy) * scale;
            #pragma unroll
            for (int n = 0; n < KN; ++n) kv[n] = READ(k, xk + d, yk + min(t0 + tx + n * TX, T - 1) * k_sy);
            #pragma unroll
            for (int i = 0; i < RM; ++i)
                #pragma unroll
                for (int n = 0; n < KN; ++n) score[i][n] += dot(qv[i], kv[n]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);  // the previous weights have been read
        #pragma unroll
        for (int i = 0; i < RM; ++i) {
            const int s = min(s0 + own_row + i, S - 1), seen = CAUSAL ? min(T, s + 1) : T;
            #pragma unroll
            for (int n = 0; n < KN; ++n) {
                const int t = t0 + tx + n * TX;
#if SOFTCAP
                score[i][n] = tanh(score[i][n] / softcap) * softcap;
#endif
#if MASK
                if (t < T) score[i][n] += LOAD_MASK(mask, (size_t)s * mask_s + (MASK == 1 ? t : 0));
#endif
                if (t >= seen) score[i][n] = -INFINITY;
                weights[(own_row + i) * PITCH + tx + n * TX] = score[i][n];
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        float shift[RM];
        #pragma unroll
        for (int i = 0; i < RM; ++i) {
            const float before = most[i];
            for (int n = 0; n < BK; ++n) most[i] = fmax(most[i], weights[(own_row + i) * PITCH + n]);
            // A row without a visible key so far stays at zero.
            shift[i] = most[i] == -INFINITY ? 0.0f : most[i];
            const float keep = exp(before - shift[i]);
            sum[i] *= keep;
            #pragma unroll
            for (int c = 0; c < OWN; ++c) sum_y[i][c] *= keep;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll
        for (int i = 0; i < RM; ++i)
            #pragma unroll
            for (int n = 0; n < KN; ++n) {
                const float e = exp(score[i][n] - shift[i]);
                sum[i] += e;
                weights[(own_row + i) * PITCH + tx + n * TX] = e;
            }
        barrier(CLK_LOCAL_MEM_FENCE);
        const int there = min(BK, keys - t0);
        for (int n = 0; n < there; ++n) {
            float4 vv[OWN];
            #pragma unroll
            for (int c = 0; c < OWN; ++c) vv[c] = READ(v, xv + min(c0 + c * TX, texels_v - 1), yv + (t0 + n) * v_sy);
            #pragma unroll
            for (int i = 0; i < RM; ++i) {
                const float w = weights[(own_row + i) * PITCH + n];
                #pragma unroll
                for (int c = 0; c < OWN; ++c) sum_y[i][c] = mad((float4)w, vv[c], sum_y[i][c]);
            }
        }
    }
    // Each work-item summed the exponentials of its own keys.
    barrier(CLK_LOCAL_MEM_FENCE);
    #pragma unroll
    for (int i = 0; i < RM; ++i) weights[(own_row + i) * PITCH + tx] = sum[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    #pragma unroll
    for (int i = 0; i < RM; ++i) {
        const int s = s0 + own_row + i;
        if (s >= S) break;
        float total = 0;
        for (int n = 0; n < TX; ++n) total += weights[(own_row + i) * PITCH + n];
        const float factor = total == 0.0f && !BLIND_NAN ? 0.0f : 1.0f / total;
        #pragma unroll
        for (int c = 0; c < OWN; ++c) {
            const float4 row = IS_ZERO(total) ? (float4)0 : sum_y[i][c] * factor;
            if (c0 + c * TX < texels_v) STOREV(y, s * y_s + (c0 + c * TX) * 4, row);
        }
    }
}
