// Classifies TURN keys for 16 * QW queries (a block) by the mask: HIDES all, LEAVES all scores unchanged, or ADDS to some.
// Hidden keys can be skipped if each of these queries sees another key. Queries that see none weigh all keys
// equally, or give NaN, depending on the mask's lowest number. A bit per query says whether it sees one of LOOKERS keys.
// kinds[block, turn], seen[block, LOOKERS keys, 2 words]. Work-group: LOOKERS. Grid: (blocks * LOOKERS keys * LOOKERS, heads,
// batches of the mask).
#define HIDES 0
#define LEAVES 1
#define ADDS 2
#if LOOK
#define LOOKERS 256
#define HIDDEN -1e30f  // far below all scores of halves
#define BLOCK_ROWS(word) (16 * QW >= (word) * 32 + 32 ? 0xffffffffu : 16 * QW > (word) * 32 ? 0xffffu : 0u)

__attribute__((reqd_work_group_size(LOOKERS, 1, 1)))
kernel void look_at_mask(global const MASK_REAL *restrict mask, global uchar *restrict kinds, global uint *restrict seen, int S,
                         int T, int blocks, int turns, int looks, int looks_b, int looks_h, int mask_b, int mask_h, int mask_s) {
    local int shows[LOOKERS / 16], adds[LOOKERS / 16];
    local uint rows[2];
    const int item = get_local_id(0), block = get_group_id(0) % blocks, look = get_group_id(0) / blocks, s0 = block * (16 * QW);
    const size_t at = (size_t)get_group_id(2) * looks_b + (size_t)get_group_id(1) * looks_h + block;
    mask += (size_t)get_group_id(2) * mask_b + (size_t)get_group_id(1) * mask_h;
    if (item < LOOKERS / 16) shows[item] = adds[item] = 0;
    if (item < 2) rows[item] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    const int t = look * LOOKERS + item;
    uint mine[2] = {0, 0};
    bool is_changed = false;
    if (t < T) {
        #pragma unroll 16
        for (int r = 0; r < 16 * QW; ++r) {
            const float m = LOAD_MASK(mask, (size_t)min(s0 + r, S - 1) * mask_s + t);
            mine[r / 32] |= (uint)!(m < HIDDEN) << r % 32;
            is_changed |= m != 0;
        }
    }
    if (mine[0] | mine[1]) {
        shows[item / TURN] = 1;
        atomic_or(rows, mine[0]);
        atomic_or(rows + 1, mine[1]);
    }
    if (is_changed) adds[item / TURN] = 1;
    barrier(CLK_LOCAL_MEM_FENCE);
    const int turn = look * (LOOKERS / TURN) + item;
    if (item < LOOKERS / TURN && turn < turns) kinds[at * turns + turn] = !shows[item] ? HIDES : adds[item] ? ADDS : LEAVES;
    if (item < 2) seen[(at * looks + look) * 2 + item] = rows[item];
}

// Whether each query of a block sees a key.
static inline bool all_see(global const uint *seen, int looks) {
    uint low = 0, high = 0;
    for (int i = 0; i < looks; ++i) low |= seen[2 * i], high |= seen[2 * i + 1];
    return low == BLOCK_ROWS(0) && high == BLOCK_ROWS(1);
}
#endif
