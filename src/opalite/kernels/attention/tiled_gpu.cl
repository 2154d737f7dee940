// y[b,h,s] = sum_t softmax_t(cap(scale * q[b,h,s] . k[b,g,t]) + mask[b,h,s,t]) * v[b,g,t] (ops/attention.py) on GPUs.
// A work-group of TX x TY work-items takes TY * RM queries of one head through blocks of TX * KN keys; scores stay in
// local memory. Online softmax: if a later block raises a row's maximum, the previous sums are
// scaled down (Milakov and Gimelshein 2018, Dao et al. 2022). Heads are processed DC elements at a time.
// Grid: (TX * ceil(S / (TY * RM)), TY * H, B * ceil(Dv / (CHUNKS * DC))).
//   RM, KN    queries and keys of one work-item     CHUNKS   blocks of DC output columns that a work-group keeps
//   MASK, CAUSAL, SOFTCAP   as in attention/flash_cpu.cl        DC is a multiple of TX
#include "attention/blind_rows.cl"
#ifndef TX
#define TX 16
#define TY 16
#define RM 2
#define KN 2
#define DC 32
#define CHUNKS 2
#define MASK 0
#define CAUSAL 0
#define SOFTCAP 0
#endif
#define BQ (TY * RM)
#define BK (TX * KN)
#define ITEMS (TX * TY)
#define OWN (DC / TX)  // columns of a chunk that one work-item sums
// Pitches are odd, so that columns have no bank conflicts.
#define Q_PITCH (BQ + 1)
#define K_PITCH (BK + 1)
#define V_PITCH (DC + 1)
#define KV_CELLS (DC * K_PITCH > BK * V_PITCH ? DC * K_PITCH : BK * V_PITCH)

__attribute__((reqd_work_group_size(TX, TY, 1)))
kernel void attention_tile(global const REAL *restrict q, global const REAL *restrict k,
                           global const REAL *restrict v, global const MASK_REAL *restrict mask, global REAL *restrict y,
                           int batches, int heads, int sharing, int S, int T, int D, int Dv, PLACES, int mask_b,
                           int mask_h, int mask_s, int parts, ACC scale, ACC softcap) {
    local ACC q_tile[DC * Q_PITCH], kv_tile[KV_CELLS], p_tile[BQ * K_PITCH];
    const int tx = get_local_id(0), ty = get_local_id(1), item = ty * TX + tx;
    const int s0 = get_group_id(0) * BQ, h = get_group_id(1), b = get_group_id(2) / parts;
    const int c0 = get_group_id(2) % parts * CHUNKS * DC;
    q = HEAD(q, b, h);
    k = HEAD(k, b, h / sharing);
    v = HEAD(v, b, h / sharing);
    y = HEAD(y, b, h);
    mask += (size_t)b * mask_b + (size_t)h * mask_h;

    ACC sum_y[RM][CHUNKS * OWN], sum[RM], most[RM];
    #pragma unroll
    for (int i = 0; i < RM; ++i) {
        sum[i] = 0;
        most[i] = -INFINITY;
        #pragma unroll
        for (int c = 0; c < CHUNKS * OWN; ++c) sum_y[i][c] = 0;
    }
    const int keys = CAUSAL ? min(T, s0 + BQ) : T;
    for (int t0 = 0; t0 < keys; t0 += BK) {
        ACC score[RM][KN];
        #pragma unroll
        for (int i = 0; i < RM; ++i)
            #pragma unroll
            for (int n = 0; n < KN; ++n) score[i][n] = 0;
        for (int d0 = 0; d0 < D; d0 += DC) {
            barrier(CLK_LOCAL_MEM_FENCE);
            // Queries that fit one block stay in local memory.
            if (t0 == 0 || D > DC)
                for (int e = item; e < BQ * DC; e += ITEMS) {
                    const int s = s0 + e / DC, d = d0 + e % DC;
                    q_tile[e % DC * Q_PITCH + e / DC] = s < S && d < D ? LOAD(q, s * q_s + d) * scale : (ACC)0;
                }
            for (int e = item; e < BK * DC; e += ITEMS) {
                const int t = t0 + e / DC, d = d0 + e % DC;
                kv_tile[e % DC * K_PITCH + e / DC] = t < T && d < D ? LOAD(k, t * k_s + d) : (ACC)0;
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            #pragma unroll 8
            for (int d = 0; d < DC; ++d) {
                ACC qv[RM], kv[KN];
                #pragma unroll
                for (int i = 0; i < RM; ++i) qv[i] = q_tile[d * Q_PITCH + ty * RM + i];
                #pragma unroll
                for (int n = 0; n < KN; ++n) kv[n] = kv_tile[d * K_PITCH + tx + n * TX];
                #pragma unroll
                for (int i = 0; i < RM; ++i)
                    #pragma unroll
                    for (int n = 0; n < KN; ++n) score[i][n] += qv[i] * kv[n];
            }
        }
        #pragma unroll
        for (int i = 0; i < RM; ++i) {
            const int row = ty * RM + i, s = min(s0 + row, S - 1), seen = CAUSAL ? min(T, s + 1) : T;
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
                p_tile[row * K_PITCH + tx + n * TX] = score[i][n];
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        ACC shift[RM];
        #pragma unroll
        for (int i = 0; i < RM; ++i) {
            const ACC before = most[i];
            for (int n = 0; n < BK; ++n) most[i] = fmax(most[i], p_tile[(ty * RM + i) * K_PITCH + n]);
            // A row without a visible key so far stays at zero.
            shift[i] = most[i] == (ACC)(-INFINITY) ? (ACC)0 : most[i];
            const ACC keep = exp(before - shift[i]);
            sum[i] *= keep;
            #pragma unroll
            for (int c = 0; c < CHUNKS * OWN; ++c) sum_y[i][c] *= keep;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll
        for (int i = 0; i < RM; ++i)
            #pragma unroll
            for (int n = 0; n < KN; ++n) {
                const ACC e = exp(score[i][n] - shift[i]);
                sum[i] += e;
                p_tile[(ty * RM + i) * K_PITCH + tx + n * TX] = e;
            }
        #pragma unroll
        for (int chunk = 0; chunk < CHUNKS; ++chunk) {
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int e = item; e < BK * DC; e += ITEMS) {
                const int t = t0 + e / DC, c = c0 + chunk * DC + e % DC;
                kv_tile[e / DC * V_PITCH + e % DC] = t < T && c < Dv ? LOAD(v, t * v_s + c) : (ACC)0;
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            #pragma unroll 8
            for (int n = 0; n < BK; ++n)
                #pragma unroll
                for (int i = 0; i < RM; ++i) {
                    const ACC p = p_tile[(ty * RM + i) * K_PITCH + n];
                    #pragma unroll
                    for (int c = 0; c < OWN; ++c)
                        sum_y[i][chunk * OWN + c] += p * kv_tile[n * V_PITCH + tx + c * TX];
                }
        }
    }
    // Each work-item summed the exponentials of its own keys.
    barrier(CLK_LOCAL_MEM_FENCE);
    #pragma unroll
    for (int i = 0; i < RM; ++i) p_tile[(ty * RM + i) * K_PITCH + tx] = sum[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    #pragma unroll
    for (int i = 0; i < RM; ++i) {
        const int row = ty * RM + i;
        if (s0 + row >= S) continue;
        ACC total = 0;
        for (int n = 0; n < TX; ++n) total += p_tile[row * K_PITCH + n];
        const ACC factor = total == (ACC)0 && !BLIND_NAN ? (ACC)0 : (ACC)1 / total;
        #pragma unroll
        for (int c = 0; c < CHUNKS * OWN; ++c) {
            const int column = c0 + c / OWN * DC + tx + c % OWN * TX;
            if (column < Dv) STORE(y, (s0 + row) * y_s + column, IS_ZERO(total) ? (ACC)0 : sum_y[i][c] * factor);
        }
    }
}
