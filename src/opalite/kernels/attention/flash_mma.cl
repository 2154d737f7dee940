// y[b,h,s] = sum_t softmax_t(scale * q[b,h,s] . k[b,g,t] + mask[b,h,s,t]) * v[b,g,t] (ops/attention.py) for halves on matrix
// units. A work-group of QW x KW warps takes 16 * QW queries of one head through the keys, TURN = KEYS * KW of them at a
// time: each warp KEYS of them for 16 queries, so that its scores never leave the registers and become the left side of
// the product with the values. Warps along the keys add up their sums at the end. Online softmax
// (Milakov and Gimelshein 2018, Dao et al. 2022), in powers of two: `scale` includes log2(e). While one iteration is computed,
// the next one is loaded. D, elements of a head, is a multiple of 32, and every row begins at a multiple of 8 elements.
// Grid: (ceil(S / (16 * QW)) * group size, H, B).
//   MASK, CAUSAL   as in attention/flash_cpu.cl          KEYS   keys of a warp per iteration, a multiple of 16
//   LOOK           another launch has scanned the mask (attention/mask_block_skip.cl): iterations hidden from all queries of the group
//                  are skipped; those without an addend do not read the mask
#include "attention/blind_rows.cl"
#include "include/aligned_blocks.cl"
#ifndef QW
#define QW 2
#define KW 2
#define KEYS 32
#define D 64
#define MASK 0
#define CAUSAL 0
#define LOOK 0
#endif
#define GROUP (32 * QW * KW)
#define TURN (KEYS * KW)
#define CHUNKS (D / 8)                    // vectors of 16 bytes of a row
#define SIDE (TURN * CHUNKS)              // vectors of the keys of an iteration, and of the values
#define ROW_PITCH (D + 4)                 // floats of the sums in local memory
#define SUMS (16 * QW * KW * ROW_PITCH)   // floats
#define LOCAL_VECTORS (4 * SIDE > SUMS / 4 ? 4 * SIDE : SUMS / 4)
#define MOST_COPIES (4 * (SIDE / GROUP + 1))
#include "mma/mma_instructions.cl"
#include "attention/mask_block_skip.cl"
#define WARP_Q (WARP % QW)
#define WARP_K (WARP / QW)
#define LOG2_E 1.44269504f
// The lowest floats stay finite if multiplied by this, so that a query without a visible key weighs all keys equally.
#define FINITE(m) ((m) < -2e38f && (m) > -INFINITY ? -2e38f : (m))
// Chunks of a row are swizzled, so that lanes have no bank conflicts: of keys they read 4 chunks of 2 rows at once, of
// values one chunk of 8 rows.
#if D % 64 == 0
#define KEY_AT(row, chunk) ((row) * CHUNKS + ((chunk) ^ ((row) % 2 * 4)))
#define VALUE_AT(row, chunk) ((row) * CHUNKS + ((chunk) ^ ((row) % 8)))
#else
#define KEY_AT(row, chunk) ((row) * CHUNKS + (chunk))
#define VALUE_AT(row, chunk) ((row) * CHUNKS + ((chunk) ^ ((row) / 2 % 4)))
#endif

#define EARLY (MASK && KEYS == 16) // with few keys the mask is loaded together with them, since registers suffice

#if LOOK
#define KINDS_PARAM \
    , global const uchar *restrict kinds, global const uint *restrict seen, int turns, int looks, int looks_b, int looks_h
#define KIND(t0) kinds[(t0) / TURN]
static inline int next_turn(global const uchar *kinds, int t0, int keys, bool passes) {
    while (passes && t0 < keys && kinds[t0 / TURN] == HIDES) t0 += TURN;
    return t0;
}
#define NEXT(t0, keys) next_turn(kinds, t0, keys, passes)
#else
#define KINDS_PARAM
#define KIND(t0) (MASK ? ADDS : LEAVES)
#define NEXT(t0, keys) (t0)
#endif

static inline void copy_turn(local uint4 *to, global const REAL *k, global const REAL *v, int k_s, int v_s, int t, int T,
                             UNITS_PARAM) {
    UNROLLED
    for (int e0 = 0; e0 < SIDE; e0 += GROUP) {
        const int e = e0 + get_local_id(0), row = e / CHUNKS, chunk = e % CHUNKS;
        const bool exists = t + row < T;
        const int at = exists ? t + row : 0;
        if (SIDE % GROUP == 0 || e < SIDE) {
            COPY(16, to + KEY_AT(row, chunk), k + (size_t)at * k_s + chunk * 8, exists);
            COPY(16, to + SIDE + VALUE_AT(row, chunk), v + (size_t)at * v_s + chunk * 8, exists);
        }
    }
}

__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void attention_mma(global const REAL *restrict q, global const REAL *restrict k, global const REAL *restrict v,
                          global const MASK_REAL *restrict mask, global REAL *restrict y, int batches, int heads, int sharing,
                          int S, int T, int size, int columns, PLACES, int mask_b, int mask_h, int mask_s,
                          float scale KINDS_PARAM) {
    local uint4 held[LOCAL_VECTORS] __attribute__((aligned(128)));
    local float2 ends[16 * QW * KW];  // per row: largest score, sum of powers
    UNITS;
    const int s0 = get_group_id(0) * (16 * QW), h = get_group_id(1), b = get_group_id(2), row = LANE / 4, t4 = LANE % 4;
    q = HEAD(q, b, h);
    k = HEAD(k, b, h / sharing);
    v = HEAD(v, b, h / sharing);
    y = HEAD(y, b, h);
    mask += (size_t)b * mask_b + (size_t)h * mask_h;
#if LOOK
    const size_t block = (size_t)b * looks_b + (size_t)h * looks_h + get_group_id(0);
    kinds += block * turns;
    const bool passes = all_see(seen + block * looks * 2, looks);
#endif

    uint4 qs[D / 32][2];
    UNROLLED
    for (int i = 0; i < D / 32 * 2; ++i) {
        const int s = min(s0 + WARP_Q * 16 + i % 2 * 8 + row, S - 1);
        qs[i / 2][i % 2] = *(global const uint4 *)(q + (size_t)s * q_s + i / 2 * 32 + t4 * 8);
    }
    float sum[D / 8][4], total[2], most[2], score[KEYS / 8][4], largest[2], shift[2];
    uint parts[KEYS / 4];
    total[0] = total[1] = ZERO, most[0] = most[1] = ZERO - INFINITY;
    UNROLLED
    for (int i = 0; i < D / 8 * 4; ++i) sum[i / 4][i % 4] = ZERO;

    const int keys = CAUSAL ? min(T, s0 + 16 * QW) : T;
    int next = NEXT(0, keys);
    copy_turn(held, k, v, k_s, v_s, next, T, units_);
    COPY_DONE;
    for (int t0 = next, side = 0; t0 < keys; t0 = next, side ^= 1) {
        next = NEXT(t0 + TURN, keys);
        if (next < keys) copy_turn(held + (side ^ 1) * (2 * SIDE), k, v, k_s, v_s, next, T, units_);
        COPY_DONE;
        const bool is_plain = t0 + TURN <= (CAUSAL ? min(T, s0 + 1) : T) && KIND(t0) == LEAVES;  // no mask applies
#if EARLY
        float added[KEYS / 8][4];
        UNROLLED
        for (int i = 0; i < KEYS / 8 * 4; ++i) {
            const int s = min(s0 + WARP_Q * 16 + i / 2 % 2 * 8 + row, S - 1);
            const int t = min(t0 + WARP_K * KEYS + i / 4 * 8 + t4 * 2 + i % 2, T - 1);
            added[i / 4][i % 4] = is_plain ? 0.0f : LOAD_MASK(mask, (size_t)s * mask_s + (MASK == 1 ? t : 0));
        }
#endif
        COPY_WAIT(1);
        barrier(CLK_LOCAL_MEM_FENCE);
        local const uint4 *ks = held + side * (2 * SIDE), *vs = ks + SIDE;
        UNROLLED
        for (int j = 0; j < KEYS / 8; ++j) {
            UNROLLED
            for (int i = 0; i < 4; ++i) score[j][i] = ZERO;
            UNROLLED
            for (int u = 0; u < D / 32; ++u) {
                const uint4 w = ks[KEY_AT(WARP_K * KEYS + j * 8 + row, u * 4 + t4)];
                MULTIPLY(score[j], qs[u][0].x, qs[u][1].x, qs[u][0].y, qs[u][1].y, w.x, w.y);
                MULTIPLY(score[j], qs[u][0].z, qs[u][1].z, qs[u][0].w, qs[u][1].w, w.z, w.w);
            }
        }
        largest[0] = most[0], largest[1] = most[1];
        UNROLLED
        for (int i = 0; i < KEYS / 8 * 4; ++i) score[i / 4][i % 4] *= scale;
        if (!is_plain) {
            UNROLLED
            for (int i = 0; i < KEYS / 8 * 4; ++i) {
                const int s = min(s0 + WARP_Q * 16 + i / 2 % 2 * 8 + row, S - 1);
                const int t = t0 + WARP_K * KEYS + i / 4 * 8 + t4 * 2 + i % 2;
                float x = score[i / 4][i % 4];
#if EARLY
                if (t < T) x += FINITE(added[i / 4][i % 4]) * LOG2_E;
#elif MASK
                if (t < T) x += FINITE(LOAD_MASK(mask, (size_t)s * mask_s + (MASK == 1 ? t : 0))) * LOG2_E;
#endif
                score[i / 4][i % 4] = t < (CAUSAL ? min(T, s + 1) : T) ? x : -INFINITY;
            }
        }
        UNROLLED
        for (int i = 0; i < KEYS / 8 * 4; ++i) largest[i / 2 % 2] = fmax(largest[i / 2 % 2], score[i / 4][i % 4]);
        UNROLLED
        for (int r = 0; r < 2; ++r) {
            largest[r] = fmax(largest[r], SWAPPED(largest[r], 1));
            largest[r] = fmax(largest[r], SWAPPED(largest[r], 2));
            // A row without a visible key so far stays at zero.
            shift[r] = largest[r] == -INFINITY ? 0.0f : largest[r];
            const float keep = native_exp2(most[r] - shift[r]);
            most[r] = largest[r];
            total[r] *= keep;
            UNROLLED
            for (int i = 0; i < D / 4; ++i) sum[i / 2][r * 2 + i % 2] *= keep;
        }
        UNROLLED
        for (int i = 0; i < KEYS / 8 * 2; ++i) {
            const float low = native_exp2(score[i / 2][i % 2 * 2] - shift[i % 2]);
            const float high = native_exp2(score[i / 2][i % 2 * 2 + 1] - shift[i % 2]);
            total[i % 2] += low + high;
            parts[i] = HALVES(low, high);
        }
        UNROLLED
        for (int j = 0; j < KEYS / 16; ++j) {
            UNROLLED
            for (int d = 0; d < D / 16; ++d) {
                uint w[4];
                const int at = WARP_K * KEYS + j * 16 + LANE % 16;
                TURNED(w, vs + VALUE_AT(at, d * 2 + LANE / 16));
                MULTIPLY(sum[d * 2], parts[j * 4], parts[j * 4 + 1], parts[j * 4 + 2], parts[j * 4 + 3], w[0], w[1]);
                MULTIPLY(sum[d * 2 + 1], parts[j * 4], parts[j * 4 + 1], parts[j * 4 + 2], parts[j * 4 + 3], w[2], w[3]);
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }

    local float *sums = (local float *)held + WARP * 16 * ROW_PITCH;
    UNROLLED
    for (int r = 0; r < 2; ++r) {
        total[r] += SWAPPED(total[r], 1);
        total[r] += SWAPPED(total[r], 2);
        if (t4 == 0) ends[WARP * 16 + r * 8 + row] = (float2)(most[r], total[r]);
        UNROLLED
        for (int i = 0; i < D / 8; ++i)
            *(local float2 *)(sums + (r * 8 + row) * ROW_PITCH + i * 8 + t4 * 2) = (float2)(sum[i][r * 2], sum[i][r * 2 + 1]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int e = get_local_id(0); e < 16 * QW * (D / 4); e += GROUP) {
        const int at = e / (D / 4), d = e % (D / 4) * 4;
        if (s0 + at >= S) continue;
        float largest = -INFINITY, all = 0;
        float4 out = 0;
        bool broken = false;  // a NaN score, which fmax ignores
        for (int w = 0; w < KW; ++w) {
            largest = fmax(largest, ends[w * QW * 16 + at].x);
            broken |= isnan(ends[w * QW * 16 + at].y);
        }
        for (int w = 0; w < KW && largest != -INFINITY; ++w) {
            const float keep = native_exp2(ends[w * QW * 16 + at].x - largest);
            all += ends[w * QW * 16 + at].y * keep;
            out += *(local float4 *)((local float *)held + (w * QW * 16 + at) * ROW_PITCH + d) * keep;
        }
        if (broken) out = NAN_TO_ZERO ? (float4)0 : (float4)NAN;
        else out = all == 0 && !BLIND_NAN ? (float4)0 : out / all;
        STOREV(y, (size_t)(s0 + at) * y_s + d, out);
    }
}
