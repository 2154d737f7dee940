// Matrix products by warpgroups of four warps on the matrix units of NVIDIA's Hopper: y[p, c] = sum over q of x[p, q] w[c, q],
// halves with float sums. The channels of x come in quads (4 adjacent halves), numbered q; eight quads are a chunk, which
// two instructions (wgmma.m64nNk16) take.
//   BN      output channels of a group, a multiple of 16 up to 256        SUMS    half of that, those of a work-item
//   PW      warpgroups side by side along positions, of 64 positions each
//   STAGES  chunks of weights in local memory         SEATS, KEEP  chunks of x there, and that less 1
//   SHARED  bytes of local memory
//   PARTS   groups that share the chunks of a tile; a second launch adds their sums up
//   TURN, TOGETHER   vectors stored per iteration, an even number, and vectors whose epilogues are interleaved
// Weights are packed as the units want them, BN channels of a chunk at a time, and fetched by one instruction of one
// work-item; a barrier in local memory (full) signals their arrival, another (empty) that all warpgroups have used them.
// Each warp copies its own part of x to memory that no other warp reads: thread t of a quad of threads then holds two
// quads of positions lane / 4 and lane / 4 + 8 of its warp. The order of terms and channels that the instructions prescribe
// may be permuted as long as x and w agree: results are 4 adjacent channels. The file that includes this one defines
//   SEAT_AT                    where in SEAT_BYTES of x, for the group, those of this work-item begin
//   FETCH(seat, i)             starts this work-item's copies of the group's chunk number i, in order of i; anything that may
//                              be read past the end
//   FETCHED                    waits for all but the last KEEP chunks
//   READ_QUADS(quads, seat, u) uint2 quads[2]: those of both positions for instruction u
//   STAGE_AT(i)                the weights of the group's chunk number i
// and may define
//   SEEN(quads)                called with the result of READ_QUADS
//   NORMAL(v, h, block)        transforms the float4 sums of POSITION(tile, h) first
#ifndef BN
#define BN 64
#define SUMS 32
#define PW 1
#define STAGES 2
#define SEATS 2
#define KEEP 1
#define SHARED 16448
#define PARTS 1
#define TURN 8
#define TOGETHER 8
#endif
#define GROUP (128 * PW)
#define STAGE_BYTES (BN * 64)
#define SEAT_BYTES (GROUP * 32)
#define BAND 16  // tiles of positions whose groups follow each other, for what they share
#define LANE ((int)get_local_id(0) & 31)
#include "mma/wgmma_instructions.cl"
#ifndef SEEN
#define SEEN(quads)
#endif
#ifndef NORMAL
#define NORMAL(v, h, block) (v)
#endif
// Of this work-item and a position of its two: 0 or 8.
#define POSITION(tile, h) (((tile) * PW * 4 + ((int)get_local_id(0) >> 5)) * 16 + LANE / 4 + (h))

// The tile of this group along positions and along channels.
static inline int2 find_place(int rows_of_tiles, int columns_of_tiles) {
    const int group = get_group_id(0), band = group / (BAND * columns_of_tiles), at = group - band * BAND * columns_of_tiles;
    const int height = min(BAND, rows_of_tiles - band * BAND);
    return (int2)(band * BAND + at % height, at / height);
}

// Of `chunks`, those of this group, a part's share: how many, and the first.
#define EACH(chunks) (((chunks) + PARTS - 1) / PARTS)
#define FIRST_CHUNK(chunks) ((int)get_group_id(1) * EACH(chunks))
#define OWN_CHUNKS(chunks) max(min(EACH(chunks), (chunks) - FIRST_CHUNK(chunks)), 0)

// sum += all chunks of this group.
#define SUM_CHUNKS(sum, chunks) do { \
        const uint stage_ = ROOM_AT, seat_ = stage_ + STAGES * STAGE_BYTES + SEAT_AT; \
        const uint full_ = stage_ + STAGES * STAGE_BYTES + SEATS * SEAT_BYTES, empty_ = full_ + 8 * STAGES; \
        if (get_local_id(0) == 0) { \
            for (int i_ = 0; i_ < STAGES; ++i_) { \
                MEET_INIT(full_ + 8 * i_, 1); \
                MEET_INIT(empty_ + 8 * i_, PW); \
            } \
            MEET_READY; \
            for (int i_ = 0; i_ < min(STAGES, chunks); ++i_) { \
                MEET_EXPECT(full_ + 8 * i_, STAGE_BYTES); \
                BULK_COPY(stage_ + i_ * STAGE_BYTES, STAGE_AT(i_), STAGE_BYTES, full_ + 8 * i_); \
            } \
        } \
        barrier(CLK_LOCAL_MEM_FENCE); \
        for (int i_ = 0; i_ < SEATS; ++i_) { \
            FETCH(seat_ + i_ * SEAT_BYTES, i_); \
            COPY_DONE; \
        } \
        uint2 first_[2], second_[2]; \
        FETCHED; \
        READ_QUADS(first_, seat_, 0); \
        /* rows of 8 channels: 256 bytes from one to the next, 128 from 8 terms to the next 8 */ \
        const ulong place_ = ((ulong)(stage_ >> 4) & 0x3fff) | (8ul << 16) | (16ul << 32); \
        int slot_ = 0, at_ = 0; \
        uint parity_ = 0; \
        for (int chunk_ = 0; chunk_ < (chunks); ++chunk_) { \
            ARRIVED(full_ + 8 * slot_, parity_); \
            READY; \
            MULTIPLY(sum, first_, place_ + slot_ * (STAGE_BYTES / 16)); \
            COMMIT; \
            SEEN(first_); \
            DRAIN(1); \
            READ_QUADS(second_, seat_ + at_ * SEAT_BYTES, 1); \
            READY; \
            MULTIPLY(sum, second_, place_ + slot_ * (STAGE_BYTES / 16) + STAGE_BYTES / 32); \
            COMMIT; \
            SEEN(second_); \
            FETCH(seat_ + at_ * SEAT_BYTES, chunk_ + SEATS); \
            COPY_DONE; \
            at_ = at_ + 1 == SEATS ? 0 : at_ + 1; \
            DRAIN(1); \
            FETCHED; \
            READ_QUADS(first_, seat_ + at_ * SEAT_BYTES, 0); \
            if ((get_local_id(0) & 127) == 0 && chunk_ > 0) { \
                const int done_ = slot_ == 0 ? STAGES - 1 : slot_ - 1; \
                MEET_ARRIVE(empty_ + 8 * done_); \
                if (get_local_id(0) == 0 && chunk_ + STAGES - 1 < (chunks)) { \
                    MEET_WAIT(empty_ + 8 * done_, parity_ ^ (slot_ == 0 ? 1 : 0)); \
                    MEET_EXPECT(full_ + 8 * done_, STAGE_BYTES); \
                    BULK_COPY(stage_ + done_ * STAGE_BYTES, STAGE_AT(chunk_ + STAGES - 1), STAGE_BYTES, full_ + 8 * done_); \
                } \
            } \
            if (++slot_ == STAGES) slot_ = 0, parity_ ^= 1; \
        } \
        DRAIN(0); \
    } while (0)

// Call FINISH(float4 v, position, block of four channels) and PUT(finished v, ...) once for each vector of the tile. FINISH
// is also called past the tensor's end; what several of them read is in flight together. TURN vectors are a turn of a loop,
// after which the next ones reuse their registers; straight-line code would miss the instruction cache.
#define STORE_ALL(sum, place) do { \
        _Pragma("unroll 1") \
        for (int first_ = 0; first_ < BN / 8; first_ += TURN) { \
            _Pragma("unroll") \
            for (int v0_ = 0; v0_ < TURN; v0_ += TOGETHER) { \
                float4 done_[TOGETHER]; \
                _Pragma("unroll") \
                for (int v_ = v0_; v_ < v0_ + TOGETHER; ++v_) { \
                    const int i_ = v_ / 2 * 8 + v_ % 2 * 2, block_ = BLOCK_AT((place).y, first_ + v_); \
                    const float4 v4_ = (float4)((sum)[i_], (sum)[i_ + 1], (sum)[i_ + 4], (sum)[i_ + 5]); \
                    const float4 n4_ = NORMAL(v4_, v_ % 2 * 8, block_); \
                    done_[v_ - v0_] = FINISH(n4_, POSITION((place).x, v_ % 2 * 8), block_); \
                } \
                _Pragma("unroll") \
                for (int v_ = v0_; v_ < v0_ + TOGETHER; ++v_) \
                    PUT(done_[v_ - v0_], POSITION((place).x, v_ % 2 * 8), BLOCK_AT((place).y, first_ + v_)); \
            } \
            _Pragma("unroll") \
            for (int i_ = 0; i_ < SUMS - 4 * TURN; ++i_) (sum)[i_] = (sum)[i_ + 4 * TURN]; \
        } \
    } while (0)
#define BLOCK_AT(tile, v) (((tile) * (BN / 16) + (v) / 2) * 4 + LANE % 4)
