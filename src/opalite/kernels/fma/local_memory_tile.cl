// Register tiles of plain multiply-adds, fed by tiles in local memory: what matmul/gemm_local_tile.cl and conv/implicit_gemm_local.cl share.
//   sum[row][column] = sum over terms k of a[row][k] * b[k][column]
// A work-group computes BM = RY * TM rows by BN = CX * TN columns. Its RY * CX * SPLIT work-items bring SLAB = BK * SPLIT
// terms of both sides into local memory, terms first, while they multiply those that came before: each work-item keeps
// TM x TN sums, rows by vectors of PACK = 4 columns, over BK of the terms; the SPLIT parts are added up at the end.
//   BUFFERS   2: double buffering, one barrier per iteration; 1: half the memory, two barriers
//   ALONG     adjacent work-items are along 0: the columns, 1: the rows
//   A_PAD, B_PAD   padding vectors per term, against bank conflicts if terms are not written as vectors
//   PARTS     work-groups that share the terms of a tile; a second launch adds their sums up. Part number PART takes the
//             turns from FIRST_TURN on
//   UNROLL    terms that are unrolled
// 32 work-items form a block of 8 x 4, so that simultaneous reads of either side have no bank conflicts.
#ifndef RY
#define RY 16
#define CX 16
#define TM 8
#define TN 8
#define BK 16
#define SPLIT 1
#define BUFFERS 2
#define PARTS 1
#define UNROLL 16
#endif
#ifndef ALONG
#define ALONG 0
#endif
#ifndef A_PAD
#define A_PAD 0
#endif
#ifndef B_PAD
#define B_PAD 0
#endif
#define BM (RY * TM)
#define BN (CX * TN)
#define SLAB (BK * SPLIT)
#define ITEMS (RY * CX)
#define GROUP (ITEMS * SPLIT)
#define A_PITCH (BM / PACK + A_PAD)
#define B_PITCH (BN / PACK + B_PAD)
#define A_LOADS ((BM * SLAB / PACK + GROUP - 1) / GROUP)
#define B_LOADS ((BN * SLAB / PACK + GROUP - 1) / GROUP)
#define A_SIZE (SLAB * A_PITCH)
#define B_SIZE (SLAB * B_PITCH)
#define UNROLLED _Pragma("unroll")
#if defined(ACC_IS_FLOAT) && !defined(ACC_HALF)
#define MULTIPLY_ADD(x, y, z) fma(x, y, z)
#else
#define MULTIPLY_ADD(x, y, z) ((x) * (y) + (z))
#endif
#if SPLIT > 1 && SPLIT * BM * BN / PACK > BUFFERS * (A_SIZE + B_SIZE)
#define CELLS (SPLIT * BM * BN / PACK)
#else
#define CELLS (BUFFERS * (A_SIZE + B_SIZE))
#endif

// Position of the work-item: its share of the terms, its row and its column in the work-group.
#if ALONG
#define LANES_R (RY < 8 ? RY : 8)
#define LANES_C (CX < 4 ? CX : 4)
#else
#define LANES_R (RY < 4 ? RY : 4)
#define LANES_C (CX < 8 ? CX : 8)
#endif
#define BLOCK_ITEMS (LANES_R * LANES_C)
#define ITEM ((int)get_local_id(0))
#define SHARE (ITEM / ITEMS)
#define IN_BLOCK (ITEM % BLOCK_ITEMS)
#define BLOCK_AT (ITEM % ITEMS / BLOCK_ITEMS)
#if ALONG
#define ITEM_ROW (BLOCK_AT % (RY / LANES_R) * LANES_R + IN_BLOCK % LANES_R)
#define ITEM_COLUMN (BLOCK_AT / (RY / LANES_R) * LANES_C + IN_BLOCK / LANES_R)
#else
#define ITEM_ROW (BLOCK_AT / (CX / LANES_C) * LANES_R + IN_BLOCK / LANES_C)
#define ITEM_COLUMN (BLOCK_AT % (CX / LANES_C) * LANES_C + IN_BLOCK % LANES_C)
#endif

// One slab: row i * PACK + l of the work-item is slot (i * RY + ITEM_ROW) * PACK + l of a term, columns likewise.
static inline void multiply_slab(ACCV sum[TM][TN / PACK], local const ACCV *a, local const ACCV *b, int row, int column) {
    #pragma unroll UNROLL
    for (int k = 0; k < BK; ++k) {
        ACCV av[TM / PACK], bv[TN / PACK];
        UNROLLED
        for (int i = 0; i < TM / PACK; ++i) av[i] = a[k * A_PITCH + i * RY + row];
        UNROLLED
        for (int j = 0; j < TN / PACK; ++j) bv[j] = b[k * B_PITCH + j * CX + column];
        UNROLLED
        for (int i = 0; i < TM / PACK; ++i) {
            UNROLLED
            for (int j = 0; j < TN / PACK; ++j) {
                sum[i * PACK + 0][j] = MULTIPLY_ADD((ACCV)(av[i].s0), bv[j], sum[i * PACK + 0][j]);
                sum[i * PACK + 1][j] = MULTIPLY_ADD((ACCV)(av[i].s1), bv[j], sum[i * PACK + 1][j]);
                sum[i * PACK + 2][j] = MULTIPLY_ADD((ACCV)(av[i].s2), bv[j], sum[i * PACK + 2][j]);
                sum[i * PACK + 3][j] = MULTIPLY_ADD((ACCV)(av[i].s3), bv[j], sum[i * PACK + 3][j]);
            }
        }
    }
}

#define FIRST_TURN(part, turns) ((part) * (((turns) + PARTS - 1) / PARTS))
#define OWN_TURNS(part, turns) (min(FIRST_TURN((part) + 1, turns), turns) - FIRST_TURN(part, turns))

// `turns` slabs from number `first` on. FETCH_A(next, turn), FETCH_B(next, turn): the work-item's vectors of that slab from global memory;
// PUT_A(tile, next), PUT_B(tile, next): into local memory.
#define SUM_SLABS(sum, cells, first, turns) do { \
        ACCV next_a_[A_LOADS], next_b_[B_LOADS]; \
        FETCH_A(next_a_, first); \
        FETCH_B(next_b_, first); \
        PUT_A(cells, next_a_); \
        PUT_B((cells) + A_SIZE, next_b_); \
        barrier(CLK_LOCAL_MEM_FENCE); \
        const int row_ = ITEM_ROW, column_ = ITEM_COLUMN, from_ = SHARE * BK; \
        for (int turn_ = 1; turn_ < (turns); ++turn_) { \
            local ACCV *now_ = (cells) + (BUFFERS > 1 && !(turn_ & 1) ? A_SIZE + B_SIZE : 0); \
            local ACCV *then_ = (cells) + (BUFFERS > 1 && (turn_ & 1) ? A_SIZE + B_SIZE : 0); \
            FETCH_A(next_a_, (first) + turn_); \
            FETCH_B(next_b_, (first) + turn_); \
            multiply_slab(sum, now_ + from_ * A_PITCH, now_ + A_SIZE + from_ * B_PITCH, row_, column_); \
            if (BUFFERS == 1) barrier(CLK_LOCAL_MEM_FENCE); \
            PUT_A(then_, next_a_); \
            PUT_B(then_ + A_SIZE, next_b_); \
            barrier(CLK_LOCAL_MEM_FENCE); \
        } \
        local ACCV *last_ = (cells) + (BUFFERS > 1 && !((turns) & 1) ? A_SIZE + B_SIZE : 0); \
        multiply_slab(sum, last_ + from_ * A_PITCH, last_ + A_SIZE + from_ * B_PITCH, row_, column_); \
    } while (0)

// The sums of all shares, of which work-item SHARE finishes every SPLIT-th row: MINE(i) says which.
#if SPLIT > 1
#define MINE(i) ((i) % SPLIT == SHARE)
#define ADD_SHARES(sum, cells) do { \
        barrier(CLK_LOCAL_MEM_FENCE); \
        UNROLLED \
        for (int i = 0; i < TM; ++i) \
            UNROLLED \
            for (int j = 0; j < TN / PACK; ++j) (cells)[((SHARE * TM + i) * (TN / PACK) + j) * ITEMS + ITEM % ITEMS] = (sum)[i][j]; \
        barrier(CLK_LOCAL_MEM_FENCE); \
        UNROLLED \
        for (int i = 0; i < TM; ++i) \
            if (MINE(i)) \
                UNROLLED \
                for (int j = 0; j < TN / PACK; ++j) { \
                    ACCV total_ = (cells)[(i * (TN / PACK) + j) * ITEMS + ITEM % ITEMS]; \
                    UNROLLED \
                    for (int s = 1; s < SPLIT; ++s) \
                        total_ += (cells)[((s * TM + i) * (TN / PACK) + j) * ITEMS + ITEM % ITEMS]; \
                    (sum)[i][j] = total_; \
                } \
    } while (0)
#else
#define MINE(i) 1
#define ADD_SHARES(sum, cells)
#endif

// Row and column, within the group's tile, of row i and vector j of the work-item.
#define SLOT_OF_ROW(i) (((i) / PACK * RY + ITEM_ROW) * PACK + (i) % PACK)
#define COLUMN_OF(j) (((j) * CX + ITEM_COLUMN) * PACK)
