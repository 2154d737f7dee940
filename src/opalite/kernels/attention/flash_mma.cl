// y[b,h,s] = sum_t softmax_t(cap(scale * q[b,h,s] . k[b,g,t]) + mask[b,h,s,t]) * v[b,g,t] (ops/attention.py) for halves on matrix
// units. A work-group of QW x KW warps takes BLOCK = 16 * QB * QW queries of one head through the keys, TURN = KEYS * KW of them at a
// time: each warp KEYS of them for 16 * QB queries, so that its scores never leave the registers and become the left side of
// the product with the values. Warps along the keys add up their sums at the end. Online softmax
// (Milakov and Gimelshein 2018, Dao et al. 2022), in powers of two: `scale` and `softcap` include log2(e). Heads are padded to multiples of 16 elements in local memory, where rows have an odd number of
// vectors, so that eight rows have no bank conflicts.
// Grid: (ceil(rows / BLOCK) * PARTS * group size, heads, B).
//   SIZE, COLUMNS   elements of a row of q and k, and of v and y
//   UNIT            bytes of a copy, a power of two from 2 to 16; every row begins at a multiple of it and ends at one
//   PACKED          rows are the queries of all heads that share keys, and the grid has the heads of keys; else those of a head
//   STAGES          2: while one iteration is computed, the next one is loaded; 1: in half the memory, values are loaded while scores are
//                   computed, and the next keys while values are summed
//   PARTS           groups that share the keys of a row (Dao et al. 2023, flash-decoding), `span` keys, whole turns, each; a second
//                   launch (attention/join_parts.cl) combines their results
//   MASK, CAUSAL, SOFTCAP   as in attention/flash_cpu.cl          KEYS   keys of a warp per iteration, a multiple of 16
//   LOOK            another launch has scanned the mask (attention/mask_block_skip.cl): iterations hidden from all queries of the group
//                   are skipped; those without an addend do not read the mask
#include "attention/blind_rows.cl"
#include "include/aligned_blocks.cl"
#ifndef QW
#define QW 2
#define KW 2
#define QB 1
#define KEYS 32
#define SIZE 64
#define COLUMNS 64
#define UNIT 16
#define PACKED 0
#define STAGES 2
#define PARTS 1
#define MASK 0
#define CAUSAL 0
#define SOFTCAP 0
#define LOOK 0
#endif
#define D ((SIZE + 15) / 16 * 16)
#define DV ((COLUMNS + 15) / 16 * 16)
#define BLOCK (16 * QB * QW)
#define GROUP (32 * QW * KW)
#define TURN (KEYS * KW)
#define PITCH_K (D / 8 + 1)               // vectors of 16 bytes from a row to the next
#define PITCH_V (DV / 8 + 1)
#define VALUES_AT (TURN * PITCH_K)
#define SIDE (TURN * (PITCH_K + PITCH_V)) // vectors of the keys and values of an iteration
#define KEEP_Q (D > 128)                  // queries stay in local memory, for registers do not suffice
#define Q_VECTORS (BLOCK * PITCH_K)
#define NUMBERS (QB * (DV / 2 + 4))       // sums of a work-item
#define MERGED ((KW - 1) * QW * NUMBERS * 8)
#define LARGER_OF(a, b) ((a) > (b) ? (a) : (b))
#define Q_AT (KEEP_Q ? STAGES * SIDE : STAGES == 2 ? SIDE : VALUES_AT)
#define LOCAL_VECTORS LARGER_OF(LARGER_OF(STAGES * SIDE, Q_AT + Q_VECTORS), MERGED)
#define MOST_COPIES ((TURN * (SIZE + COLUMNS) + BLOCK * SIZE) * 2 / UNIT / GROUP + 3)
#include "mma/mma_instructions.cl"
#include "attention/mask_block_skip.cl"
#define WARP_Q (WARP % QW)
#define WARP_K (WARP / QW)
#define LOG2_E 1.44269504f
// The lowest floats stay finite if multiplied by this, so that a query without a visible key weighs all keys equally.
#define FINITE(m) ((m) < -2e38f && (m) > -INFINITY ? -2e38f : (m))
#define EARLY (MASK && KEYS * QB <= 32) // with few keys the mask is loaded together with them, since registers suffice
#define SCORES (QB * KEYS / 2)          // of a work-item: tile i / (KEYS / 2) of 16 queries, row i / 2 % 2 of the two

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

// `count` rows of `size` elements to local memory, whose rows are `pitch` vectors apart; zeros for rows from `end` on.
#define COPY_ROWS(to, pitch, from, count, size, place, exists_) do { \
        UNROLLED \
        for (int e0_ = 0; e0_ < (count) * ((size) * 2 / UNIT); e0_ += GROUP) { \
            const int e_ = e0_ + (int)get_local_id(0), row_ = e_ / ((size) * 2 / UNIT), piece_ = e_ % ((size) * 2 / UNIT); \
            if ((count) * ((size) * 2 / UNIT) % GROUP == 0 || e_ < (count) * ((size) * 2 / UNIT)) \
                COPY(UNIT, (local uchar *)(to) + row_ * ((pitch) * 16) + piece_ * UNIT, (from) + (place) + piece_ * (UNIT / 2), \
                     exists_); \
        } \
    } while (0)
#define COPY_KEYS(to, t) COPY_ROWS(to, PITCH_K, k, TURN, SIZE, ((t) + row_ < T ? (t) + row_ : 0) * k_s, (t) + row_ < T)
#define COPY_VALUES(to, t) \
    COPY_ROWS((to) + VALUES_AT, PITCH_V, v, TURN, COLUMNS, ((t) + row_ < T ? (t) + row_ : 0) * v_s, (t) + row_ < T)
#define HEAD_OF(row) (PACKED ? (int)get_group_id(1) * sharing + (row) / S : (int)get_group_id(1))
#define QUERY_OF(row) (PACKED ? (row) % S : (row))
#define PLACE_OF_ROW(row) (q_at + b * q_b + HEAD_OF(row) * q_h + QUERY_OF(row) * q_s)

__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void attention_mma(global const REAL *restrict q, global const REAL *restrict k, global const REAL *restrict v,
                          global const MASK_REAL *restrict mask, global REAL *restrict y, global float *restrict left, int batches,
                          int heads, int sharing, int S, int T, int size, int columns, PLACES, int mask_b, int mask_h, int mask_s,
                          int span, float scale, float softcap KINDS_PARAM) {
    local uint4 held[LOCAL_VECTORS] __attribute__((aligned(128)));
    UNITS;
    const int rows = PACKED ? sharing * S : S, blocks = (rows + BLOCK - 1) / BLOCK;
    const int part = PARTS == 1 ? 0 : get_group_id(0) / blocks, id = PARTS == 1 ? get_group_id(0) : get_group_id(0) % blocks;
    const int block = CAUSAL ? blocks - 1 - id : id;  // the longest first
    const int s0 = block * BLOCK, b = get_group_id(2), g = PACKED ? get_group_id(1) : get_group_id(1) / sharing;
    const int row = LANE / 4, t4 = LANE % 4;
    k = HEAD(k, b, g);
    v = HEAD(v, b, g);
    mask += (size_t)b * mask_b;
#if LOOK
    const size_t looked = (size_t)b * looks_b + (size_t)get_group_id(1) * looks_h + block;
    kinds += looked * turns;
    const bool passes = all_see(seen + looked * looks * LOOK_WORDS, looks);
#endif
    const int most_keys = CAUSAL ? min(T, PACKED ? S : s0 + BLOCK) : T, all_see_keys = CAUSAL ? min(T, (PACKED ? 0 : s0) + 1) : T;
    const int begin = PARTS == 1 ? 0 : part * span, keys = PARTS == 1 ? most_keys : min(begin + span, most_keys);


    if (SIZE != D) {  // what pads rows
        for (int e = get_local_id(0); e < LOCAL_VECTORS; e += GROUP) held[e] = (uint4)(0);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    local uint4 *const qs = held + Q_AT;
    COPY_ROWS(qs, PITCH_K, q, BLOCK, SIZE, PLACE_OF_ROW(min(s0 + row_, rows - 1)), true);
    COPY_DONE;
    int next = NEXT(begin, keys);
    COPY_KEYS(held, next);
    if (STAGES == 2) COPY_VALUES(held, next);
    COPY_DONE;

    int at_mask[QB * 2], sees[QB * 2];  // of each row of this lane: where its mask begins, and how many keys it sees
    UNROLLED
    for (int i = 0; i < QB * 2; ++i) {
        const int r = min(s0 + WARP_Q * (16 * QB) + i * 8 + row, rows - 1), s = QUERY_OF(r);
        at_mask[i] = HEAD_OF(r) * mask_h + s * mask_s;
        sees[i] = CAUSAL ? min(T, s + 1) : T;
    }
    float sum[QB * DV / 2], total[QB * 2], most[QB * 2];
    UNROLLED
    for (int i = 0; i < QB * 2; ++i) total[i] = ZERO, most[i] = ZERO - INFINITY;
    UNROLLED
    for (int i = 0; i < QB * DV / 2; ++i) sum[i] = ZERO;
    COPY_WAIT(1);
    barrier(CLK_LOCAL_MEM_FENCE);
#if !KEEP_Q
    uint own[QB * D / 4];
    UNROLLED
    for (int i = 0; i < QB * D / 16; ++i)
        TAKEN(own + i * 4, qs + (WARP_Q * (16 * QB) + i / (D / 16) * 16 + LANE % 16) * PITCH_K + i % (D / 16) * 2 + LANE / 16);
#endif

    for (int t0 = next, side = 0; t0 < keys; t0 = next, side ^= STAGES - 1) {
        COPY_WAIT(0);
        barrier(CLK_LOCAL_MEM_FENCE);
        next = NEXT(t0 + TURN, keys);
#if STAGES == 2
        if (next < keys) {
            COPY_KEYS(held + (side ^ 1) * SIDE, next);
            COPY_VALUES(held + (side ^ 1) * SIDE, next);
        }
#else
        COPY_VALUES(held, t0);
#endif
        COPY_DONE;
        const int t_of = t0 + WARP_K * KEYS + t4 * 2;
        const bool is_plain = !SOFTCAP && t0 + TURN <= all_see_keys && KIND(t0) == LEAVES;  // no mask applies
#if EARLY
        float added[SCORES];
        UNROLLED
        for (int i = 0; i < SCORES; ++i) {
            const int t = min(t_of + i % (KEYS / 2) / 4 * 8 + i % 2, T - 1);
            added[i] = is_plain ? 0.0f : LOAD_MASK(mask, at_mask[i / (KEYS / 2) * 2 + i / 2 % 2] + (MASK == 1 ? t : 0));
        }
#endif
        local const uint4 *ks = held + side * SIDE + (WARP_K * KEYS) * PITCH_K;
        local const uint4 *vs = held + side * SIDE + VALUES_AT + (WARP_K * KEYS) * PITCH_V;
        float score[SCORES];
        UNROLLED
        for (int i = 0; i < SCORES; ++i) score[i] = ZERO;
        UNROLLED
        for (int u = 0; u < D / 16; ++u) {
#if KEEP_Q
            uint own[QB * 4];
            UNROLLED
            for (int i = 0; i < QB; ++i)
                TAKEN(own + i * 4, qs + (WARP_Q * (16 * QB) + i * 16 + LANE % 16) * PITCH_K + u * 2 + LANE / 16);
#define OWN(i, u) (own + (i) * 4)
#else
#define OWN(i, u) (own + ((i) * (D / 16) + (u)) * 4)
#endif
            UNROLLED
            for (int j = 0; j < KEYS / 16; ++j) {
                uint w[4];
                TAKEN(w, ks + (j * 16 + LANE / 16 * 8 + LANE % 8) * PITCH_K + u * 2 + LANE / 8 % 2);
                UNROLLED
                for (int i = 0; i < QB; ++i) {
                    const uint *a = OWN(i, u);
                    float *to = score + i * (KEYS / 2) + j * 8;
                    MULTIPLY(to, a[0], a[1], a[2], a[3], w[0], w[1]);
                    MULTIPLY(to + 4, a[0], a[1], a[2], a[3], w[2], w[3]);
                }
            }
        }
#if STAGES == 1
        barrier(CLK_LOCAL_MEM_FENCE);
        if (next < keys) COPY_KEYS(held, next);
        COPY_DONE;
#endif
        float by = scale;
        if (!is_plain) {
            by = 1;
            UNROLLED
            for (int i = 0; i < SCORES; ++i) {
                const int r = i / (KEYS / 2) * 2 + i / 2 % 2, t = t_of + i % (KEYS / 2) / 4 * 8 + i % 2;
                float x = score[i] * scale;
#if SOFTCAP
                x = tanh(x / softcap) * softcap;
#endif
#if EARLY
                x += FINITE(added[i]) * LOG2_E;
#elif MASK
                if (t < T) x += FINITE(LOAD_MASK(mask, at_mask[r] + (MASK == 1 ? t : 0))) * LOG2_E;
#endif
                score[i] = t < sees[r] ? x : -INFINITY;
            }
        }
        UNROLLED
        for (int r = 0; r < QB * 2; ++r) {
            float largest = -INFINITY;
            UNROLLED
            for (int i = 0; i < KEYS / 4; ++i) largest = fmax(largest, score[r / 2 * (KEYS / 2) + i / 2 * 4 + r % 2 * 2 + i % 2]);
            largest = fmax(largest, SWAPPED(largest, 1));
            largest = fmax(most[r], fmax(largest, SWAPPED(largest, 2)) * by);
            // A row without a visible key so far stays at zero.
            const float shift = largest == -INFINITY ? 0.0f : largest, keep = POWER(most[r] - shift);
            most[r] = largest;
            total[r] *= keep;
            UNROLLED
            for (int i = 0; i < DV / 4; ++i) sum[r / 2 * (DV / 2) + i / 2 * 4 + r % 2 * 2 + i % 2] *= keep;
            UNROLLED
            for (int i = 0; i < KEYS / 4; ++i) {
                const int at = r / 2 * (KEYS / 2) + i / 2 * 4 + r % 2 * 2 + i % 2;
                score[at] = POWER(fma(score[at], by, -shift));
                total[r] += score[at];
            }
        }
#if STAGES == 1
        COPY_WAIT(1);
        barrier(CLK_LOCAL_MEM_FENCE);
#endif
        UNROLLED
        for (int j = 0; j < KEYS / 16; ++j) {
            uint weights[QB * 4];
            UNROLLED
            for (int i = 0; i < QB * 4; ++i) {
                const int at = i / 4 * (KEYS / 2) + j * 8 + i % 4 * 2;
                weights[i] = HALVES(score[at], score[at + 1]);
            }
            UNROLLED
            for (int d = 0; d < DV / 16; ++d) {
                uint w[4];
                TURNED(w, vs + (j * 16 + LANE % 16) * PITCH_V + d * 2 + LANE / 16);
                UNROLLED
                for (int i = 0; i < QB; ++i) {
                    const uint *a = weights + i * 4;
                    float *to = sum + i * (DV / 2) + d * 8;
                    MULTIPLY(to, a[0], a[1], a[2], a[3], w[0], w[1]);
                    MULTIPLY(to + 4, a[0], a[1], a[2], a[3], w[2], w[3]);
                }
            }
        }
    }

    UNROLLED
    for (int r = 0; r < QB * 2; ++r) {
        total[r] += SWAPPED(total[r], 1);
        total[r] += SWAPPED(total[r], 2);
    }
#if KW > 1
    barrier(CLK_LOCAL_MEM_FENCE);
    if (WARP_K > 0) {
        local float *mine = (local float *)held + (WARP - QW) * (NUMBERS * 32) + LANE;
        UNROLLED
        for (int r = 0; r < QB * 2; ++r) mine[r * 64] = most[r], mine[r * 64 + 32] = total[r];
        UNROLLED
        for (int i = 0; i < QB * DV / 2; ++i) mine[(QB * 4 + i) * 32] = sum[i];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int w = 0; w < KW - 1 && WARP_K == 0; ++w) {
        local const float *other = (local const float *)held + (w * QW + WARP_Q) * (NUMBERS * 32) + LANE;
        UNROLLED
        for (int r = 0; r < QB * 2; ++r) {
            const float largest = fmax(most[r], other[r * 64]), shift = largest == -INFINITY ? 0.0f : largest;
            const float keep = POWER(most[r] - shift), more = POWER(other[r * 64] - shift);
            most[r] = largest;
            total[r] = total[r] * keep + other[r * 64 + 32] * more;
            UNROLLED
            for (int i = 0; i < DV / 4; ++i) {
                const int at = r / 2 * (DV / 2) + i / 2 * 4 + r % 2 * 2 + i % 2;
                sum[at] = sum[at] * keep + other[(QB * 4 + at) * 32] * more;
            }
        }
    }
#endif
    UNROLLED
    for (int r = 0; r < QB * 2; ++r) {
        const int at = s0 + WARP_Q * (16 * QB) + r * 8 + row;
        if (at >= rows || WARP_K > 0) continue;
        const int h = HEAD_OF(at), s = QUERY_OF(at);
#if PARTS == 1
        global REAL *out = HEAD(y, b, h) + (size_t)s * y_s;
        const bool is_zero = IS_ZERO(total[r]) || (total[r] == 0 && !BLIND_NAN);
        const float factor = 1 / total[r];
#else
        global float *out = left + ((((size_t)b * heads + h) * S + s) * PARTS + part) * (COLUMNS + 2) + 2;
        if (t4 == 0) out[-2] = most[r] / LOG2_E, out[-1] = total[r];
#endif
        UNROLLED
        for (int i = 0; i < DV / 8; ++i) {
            const int c = i * 8 + t4 * 2, of = r / 2 * (DV / 2) + i * 4 + r % 2 * 2;
#if PARTS == 1
            const float low = is_zero ? 0 : sum[of] * factor, high = is_zero ? 0 : sum[of + 1] * factor;
#if UNIT > 2
            if (c < COLUMNS) *(global uint *)(out + c) = HALVES(low, high);
#else
            if (c < COLUMNS) STORE(out, c, low);
            if (c + 1 < COLUMNS) STORE(out, c + 1, high);
#endif
#else
            if (c < COLUMNS) out[c] = sum[of];
            if (c + 1 < COLUMNS) out[c + 1] = sum[of + 1];
#endif
        }
    }
}
