// Matrix products on matrix units from stages in local memory: y[p, c] = sum over q of x[p, q] w[c, q], halves with float
// sums. The channels of x come in quads (4 adjacent halves), numbered q; eight quads are a slab, which two
// instructions of each tile take. While one stage is multiplied, STAGES - 1 others are in flight.
//   WM, WN  tiles of 16 positions and of 16 output channels of a warp
//   PW, NW  warps side by side along positions and along channels
//   SPLIT   warps that share the slabs of a tile and add up their sums; divides SL
//   SL      slabs of a stage            STAGES, KEEP  stages in local memory, at least 2, and that less 2
// The layout that mma.m16n8k16 prescribes along k and n may be permuted as long as x and w agree: thread t of a quad of
// threads takes whole quads of x, and the weights are packed for it: [tile of 16 channels][step][lane]{8 halves}, `steps`
// a multiple of those of a stage; its results are 4 adjacent channels. The file that includes this one defines before
// calling SUM_STAGES
//   COPY_INPUT(stage, turn)     starts the copies of x for a stage: BM positions, SL slabs, at local uint4 *stage
//   INPUT(stage, u, position)   uint4: this thread's quads of slab u, as first and second step
// and may define
//   SEEN(a, turn)               called with the result of INPUT for the warp's positions: const uint4 a[WM][2]
#ifndef WM
#define WM 1
#define WN 1
#define PW 1
#define NW 1
#define SPLIT 1
#define SL 1
#define STAGES 2
#define KEEP 0
#endif
#define BM (16 * WM * PW)
#define BN (16 * WN * NW)
#define GROUP (32 * PW * NW * SPLIT)
#define STEPS (2 * SL)
#define INPUT_STAGE (BM * SL * 4)  // vectors of 16 bytes
#define WEIGHT_STAGE (BN * SL * 4)
#define STAGE (INPUT_STAGE + WEIGHT_STAGE)
#define MOST_COPIES ((STAGE / GROUP + 2) * 2 * STAGES)
#define VECTORS (WM * WN * 2)
#define INLINE_PTX 1
#include "include/async_constant_loads.cl"
#include "mma/mma_instructions.cl"
#define WARP_P (WARP % PW)
#define WARP_N (WARP / PW % NW)
#define WARP_K (WARP / (PW * NW))
#define FIRST_POSITION (((int)get_group_id(0) * PW + WARP_P) * 16 * WM)
#define FIRST_TILE (((int)get_group_id(1) * NW + WARP_N) * WN)
#define STAGES_LOCAL local uint4 stages[STAGES * STAGE] __attribute__((aligned(128)))

static inline void copy_weights(local uint4 *stage, global const uint4 *weights, int tiles, int steps, int turn,
                                UNITS_PARAM) {
    UNROLLED
    for (int e0 = 0; e0 < WEIGHT_STAGE; e0 += GROUP) {
        const int e = e0 + get_local_id(0), tile = get_group_id(1) * (BN / 16) + e / (STEPS * 32);
        if (WEIGHT_STAGE % GROUP == 0 || e < WEIGHT_STAGE)
            COPY(16, stage + e, weights + ((size_t)min(tile, tiles - 1) * steps + turn * STEPS) * 32 + e % (STEPS * 32), true);
    }
}

// sum += the slab whose quads of x are `a` and whose first weights for this lane are at `w`.
static inline void multiply_slab(float sum[WM][WN][2][4], const uint4 a[WM][2], local const uint4 *w, UNITS_PARAM) {
    UNROLLED
    for (int j = 0; j < WN; ++j) {
        const uint4 first = w[j * STEPS * 32], second = w[j * STEPS * 32 + 32];
        UNROLLED
        for (int i = 0; i < WM; ++i) {
            MULTIPLY(sum[i][j][0], a[i][0].x, a[i][1].x, a[i][0].y, a[i][1].y, first.x, first.y);
            MULTIPLY(sum[i][j][1], a[i][0].x, a[i][1].x, a[i][0].y, a[i][1].y, first.z, first.w);
        }
        UNROLLED
        for (int i = 0; i < WM; ++i) {
            MULTIPLY(sum[i][j][0], a[i][0].z, a[i][1].z, a[i][0].w, a[i][1].w, second.x, second.y);
            MULTIPLY(sum[i][j][1], a[i][0].z, a[i][1].z, a[i][0].w, a[i][1].w, second.z, second.w);
        }
    }
}

#ifndef SEEN
#define SEEN(a, turn)
#endif

// sum += all `turns` stages. Every work-item of the group executes it. The weights of the first stages are loaded before other
// launches are awaited, and count as copies of the first stage.
#define SUM_STAGES(sum, turns) do { \
        for (int s_ = 0; s_ < STAGES - 1; ++s_) \
            if (s_ < (turns)) copy_weights(stages + s_ * STAGE + INPUT_STAGE, weights, tiles, steps, s_, units_); \
        AWAIT; \
        for (int s_ = 0; s_ < STAGES - 1; ++s_) { \
            if (s_ < (turns)) COPY_INPUT(stages + s_ * STAGE, s_); \
            COPY_DONE; \
        } \
        for (int turn_ = 0, slot_ = 0, free_ = STAGES - 1; turn_ < (turns); ++turn_) { \
            COPY_WAIT(KEEP); \
            barrier(CLK_LOCAL_MEM_FENCE); \
            if (turn_ + STAGES - 1 < (turns)) { \
                COPY_INPUT(stages + free_ * STAGE, turn_ + STAGES - 1); \
                copy_weights(stages + free_ * STAGE + INPUT_STAGE, weights, tiles, steps, turn_ + STAGES - 1, units_); \
            } \
            COPY_DONE; \
            local const uint4 *stage_ = stages + slot_ * STAGE; \
            UNROLLED \
            for (int u_ = 0; u_ < SL / SPLIT; ++u_) { \
                const int slab_ = u_ * SPLIT + WARP_K; \
                uint4 a_[WM][2]; \
                UNROLLED \
                for (int i_ = 0; i_ < WM * 2; ++i_) \
                    a_[i_ / 2][i_ % 2] = INPUT(stage_, slab_, WARP_P * 16 * WM + i_ * 8 + LANE / 4); \
                SEEN(a_, turn_); \
                multiply_slab(sum, a_, stage_ + INPUT_STAGE + (WARP_N * WN * STEPS + 2 * slab_) * 32 + LANE, units_); \
            } \
            slot_ = slot_ + 1 == STAGES ? 0 : slot_ + 1; \
            free_ = free_ + 1 == STAGES ? 0 : free_ + 1; \
        } \
    } while (0)

// The four adjacent channels of position 8 * h + lane / 4 of tile (i, j).
#define RESULT(sum, i, j, h) \
    ((float4)((sum)[i][j][0][2 * (h)], (sum)[i][j][0][2 * (h) + 1], (sum)[i][j][1][2 * (h)], (sum)[i][j][1][2 * (h) + 1]))

// Call FINISH(float4 v, position, block of four channels), then PUT(that, position, block) once for each vector of the
// tile, sums of all SPLIT added. What FINISH reads for a row of tiles is in flight together: it has places past the last
// position and block, too, and PUT leaves them out.
#define AT_POSITION(i, h) (FIRST_POSITION + (i) * 16 + (h) * 8 + LANE / 4)
#define AT_BLOCK(j) ((FIRST_TILE + (j)) * 4 + LANE % 4)
#if SPLIT > 1
#define SHARE ((VECTORS + SPLIT - 1) / SPLIT)  // vectors that a warp stores
#define STORE_ALL(sum) do { \
        barrier(CLK_LOCAL_MEM_FENCE); \
        local float4 *mine = (local float4 *)stages + (WARP_N * PW + WARP_P) * (SPLIT * VECTORS * 32) + LANE; \
        UNROLLED \
        for (int v = 0; v < VECTORS; ++v) \
            mine[(WARP_K * VECTORS + v) * 32] = RESULT(sum, v / 2 / WN, v / 2 % WN, v % 2); \
        barrier(CLK_LOCAL_MEM_FENCE); \
        float4 out[SHARE]; \
        UNROLLED \
        for (int i = 0; i < SHARE; ++i) { \
            const int v = min(i * SPLIT + WARP_K, VECTORS - 1); \
            float4 total = mine[v * 32]; \
            UNROLLED \
            for (int k = 1; k < SPLIT; ++k) total += mine[(k * VECTORS + v) * 32]; \
            out[i] = FINISH(total, AT_POSITION(v / 2 / WN, v % 2), AT_BLOCK(v / 2 % WN)); \
        } \
        UNROLLED \
        for (int i = 0; i < SHARE; ++i) { \
            const int v = i * SPLIT + WARP_K; \
            if (v < VECTORS) PUT(out[i], AT_POSITION(v / 2 / WN, v % 2), AT_BLOCK(v / 2 % WN)); \
        } \
    } while (0)
#else
#define STORE_ALL(sum) do { \
        UNROLLED \
        for (int i = 0; i < WM; ++i) { \
            float4 out[WN * 2]; \
            UNROLLED \
            for (int v = 0; v < WN * 2; ++v) \
                out[v] = FINISH(RESULT(sum, i, v / 2, v % 2), AT_POSITION(i, v % 2), AT_BLOCK(v / 2)); \
            UNROLLED \
            for (int v = 0; v < WN * 2; ++v) PUT(out[v], AT_POSITION(i, v % 2), AT_BLOCK(v / 2)); \
        } \
    } while (0)
#endif
