// y[z, m, n] = sum_k a[z, m, k] b[z, k, n] in tiles that a work-group shares through local memory, for GPUs.
// See fma/local_memory_tile.cl for the tiles. Work-group: RY * CX * SPLIT. Grid: (ceil(N / BN) * group, ceil(M / BM), batches * PARTS).
//   TRANS_A, TRANS_B   the last two dimensions of that input are stored swapped
//   PANELS    b is a constant in panels: [ceil(N / BN), turns * SLAB, BN], zeros past its columns and terms
//   ALIGNED   rows of both operands in memory are multiples of 4 elements
#include "matmul/batch_offsets.cl"
#ifndef ALIGNED
#define ALIGNED 0
#endif
#ifndef PANELS
#define PANELS 0
#endif
#ifndef TRANS_A
#define TRANS_A 0
#endif
#ifndef TRANS_B
#define TRANS_B 0
#endif
#define A_PAD (TRANS_A ? 0 : 1)
#define B_PAD (TRANS_B && !PANELS ? 1 : 0)
#include "fma/local_memory_tile.cl"
#if ALIGNED
#include "include/aligned_blocks.cl"
#endif

#if STORAGE == 0
#define LOAD_PANEL(p, i) (*(global const float4 *)((p) + (i)))
#else
#define LOAD_PANEL(p, i) LOADV(p, i)
#endif

// Four neighbours at p + at, of which those before `end` exist, counted from `first`; zero if the line does not exist.
static inline ACCV four(global const REAL *p, size_t at, int first, int end, bool exists) {
#if ALIGNED
    return exists && first < end ? LOADV(p, at) : (ACCV)0;
#else
    if (!exists) return (ACCV)0;
    if (first + PACK <= end) return LOADV(p, at);
    ACC lanes[PACK];
    UNROLLED
    for (int l = 0; l < PACK; ++l) lanes[l] = first + l < end ? LOAD(p, at + l) : (ACC)0;
    return (ACCV)(lanes[0], lanes[1], lanes[2], lanes[3]);
#endif
}

// Vectors of a tile of `lines` x `terms`, by work-items: those that lie along the terms are stored apart.
#define ALONG_TERMS(e) ((e) % (SLAB / PACK) * PACK)
#define LINE_OF(e) ((e) / (SLAB / PACK))
static inline void put_across(local ACCV *tile, int pitch, int line, int k, ACCV v) {
    local ACC *cell = (local ACC *)tile + k * pitch * PACK + line;
    cell[0] = v.s0;
    cell[pitch * PACK] = v.s1;
    cell[2 * pitch * PACK] = v.s2;
    cell[3 * pitch * PACK] = v.s3;
}

static inline void fetch_a(ACCV *next, global const REAL *a, int turn, int m0, int M, int K, int lda) {
    UNROLLED
    for (int i = 0; i < A_LOADS; ++i) {
        const int e = ITEM + i * GROUP;
        if (BM * SLAB / PACK % GROUP != 0 && e >= BM * SLAB / PACK) break;
#if TRANS_A
        const int m = m0 + e % (BM / PACK) * PACK, k = turn * SLAB + e / (BM / PACK);
        next[i] = four(a, (size_t)k * lda + m, m, M, k < K);
#else
        // Rows past the last one are read as the last one: their sums are not stored.
        const int m = min(m0 + LINE_OF(e), M - 1), k = turn * SLAB + ALONG_TERMS(e);
        next[i] = four(a, (size_t)m * lda + k, k, K, true);
#endif
    }
}
#define FETCH_A(next, turn) fetch_a(next, a, turn, m0, M, K, lda)

static inline void put_a(local ACCV *tile, const ACCV *next) {
    UNROLLED
    for (int i = 0; i < A_LOADS; ++i) {
        const int e = ITEM + i * GROUP;
        if (BM * SLAB / PACK % GROUP != 0 && e >= BM * SLAB / PACK) break;
#if TRANS_A
        tile[e / (BM / PACK) * A_PITCH + e % (BM / PACK)] = next[i];
#else
        put_across(tile, A_PITCH, LINE_OF(e), ALONG_TERMS(e), next[i]);
#endif
    }
}
#define PUT_A put_a

static inline void fetch_b(ACCV *next, global const REAL *b, int turn, int n0, int N, int K, int ldb) {
    UNROLLED
    for (int i = 0; i < B_LOADS; ++i) {
        const int e = ITEM + i * GROUP;
        if (BN * SLAB / PACK % GROUP != 0 && e >= BN * SLAB / PACK) break;
#if PANELS
        next[i] = LOAD_PANEL(b, ((size_t)turn * (BN * SLAB / PACK) + e) * PACK);
#elif TRANS_B
        const int n = min(n0 + LINE_OF(e), N - 1), k = turn * SLAB + ALONG_TERMS(e);
        next[i] = four(b, (size_t)n * ldb + k, k, K, true);
#else
        const int n = n0 + e % (BN / PACK) * PACK, k = turn * SLAB + e / (BN / PACK);
        next[i] = four(b, (size_t)k * ldb + n, n, N, k < K);
#endif
    }
}
#define FETCH_B(next, turn) fetch_b(next, b, turn, n0, N, K, ldb)

static inline void put_b(local ACCV *tile, const ACCV *next) {
    UNROLLED
    for (int i = 0; i < B_LOADS; ++i) {
        const int e = ITEM + i * GROUP;
        if (BN * SLAB / PACK % GROUP != 0 && e >= BN * SLAB / PACK) break;
#if TRANS_B && !PANELS
        put_across(tile, B_PITCH, LINE_OF(e), ALONG_TERMS(e), next[i]);
#else
        tile[e] = next[i];
#endif
    }
}
#define PUT_B put_b

#if PARTS > 1
#define RESULT global ACC *restrict parts
#define CHAIN
#else
#define RESULT global REAL *restrict y
#define CHAIN EPILOGUE_PARAMS
#endif

__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void matmul_tile(global const REAL *restrict a, global const REAL *restrict b, RESULT, global const int *batch, int dims,
                        int batches, int M, int N, int K, int lda, int ldb CHAIN) {
    local ACCV cells[CELLS];
    const int z = get_group_id(2) / PARTS, part = get_group_id(2) % PARTS;
    const int m0 = get_group_id(1) * BM, n0 = get_group_id(0) * BN, all = (K + SLAB - 1) / SLAB;
    const int first = FIRST_TURN(part, all), turns = OWN_TURNS(part, all);
    size_t a_offset, b_offset;
    batch_offsets(batch, dims, z, &a_offset, &b_offset);
    a += a_offset;
#if PANELS
    b += (size_t)get_group_id(0) * all * (SLAB * BN);
#else
    b += b_offset;
#endif
    ACCV sum[TM][TN / PACK];
    UNROLLED
    for (int i = 0; i < TM; ++i)
        UNROLLED
        for (int j = 0; j < TN / PACK; ++j) sum[i][j] = (ACCV)0;
    if (turns > 0) SUM_SLABS(sum, cells, first, turns);
    ADD_SHARES(sum, cells);
    UNROLLED
    for (int i = 0; i < TM; ++i) {
        const int m = m0 + SLOT_OF_ROW(i), r = z * M + m;
        if (!MINE(i) || m >= M) continue;
        UNROLLED
        for (int j = 0; j < TN / PACK; ++j) {
            const int n = n0 + COLUMN_OF(j);
#if PARTS > 1
            if (n < N) *(global ACCV *)(parts + ((size_t)part * batches * M + r) * N + n) = sum[i][j];
#else
            const size_t at = (size_t)r * N + n;
            if (n + PACK <= N) {
                const ACCV out = EPILOGUE(sum[i][j], r, n, batches * M, N);
                STOREV(y, at, out);
            }
#if !ALIGNED
            else {
                ACC lanes[PACK];
                VSTORE(PACK, sum[i][j], 0, lanes);
                for (int l = 0; l < PACK && n + l < N; ++l) {
                    const ACC out = EPILOGUE1(lanes[l], r, n + l, batches * M, N);
                    STORE(y, at + l, out);
                }
            }
#endif
#endif
        }
    }
}

#if PARTS > 1
#include "matmul/split_k_sum.cl"
#endif
