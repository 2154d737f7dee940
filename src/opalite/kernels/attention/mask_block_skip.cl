// Classifies TURN keys for BLOCK queries (a block) by the mask: HIDES all, LEAVES all scores unchanged, or ADDS to some.
// Hidden keys can be skipped if each of these queries sees another key. Queries that see none weigh all keys
// equally, or give NaN, depending on the mask's lowest number. A bit per query says whether it sees one of LOOKERS keys.
// kinds[block, turn], seen[block, LOOKERS keys, LOOK_WORDS words]. Work-group: LOOKERS. Grid: (blocks * LOOKERS keys * LOOKERS, heads,
// batches of the mask).
#define HIDES 0
#define LEAVES 1
#define ADDS 2
#if LOOK
#define LOOKERS 256
#define HIDDEN -1e30f  // far below all scores of halves
#define LOOK_WORDS ((BLOCK + 31) / 32)
#define BLOCK_ROWS(word) (BLOCK >= (word) * 32 + 32 ? 0xffffffffu : 0xffffu)

__attribute__((reqd_work_group_size(LOOKERS, 1, 1)))
kernel void look_at_mask(global const MASK_REAL *restrict mask, global uchar *restrict kinds, global uint *restrict seen, int S,
                         int T, int blocks, int turns, int looks, int looks_b, int looks_h, int mask_b, int mask_h, int mask_s) {
    local int shows[LOOKERS / 16], adds[LOOKERS / 16];
    local uint rows[LOOK_WORDS];
    const int item = get_local_id(0), block = get_group_id(0) % blocks, look = get_group_id(0) / blocks, s0 = block * (BLOCK);
    const size_t at = (size_t)get_group_id(2) * looks_b + (size_t)get_group_id(1) * looks_h + block;
    mask += (size_t)get_group_id(2) * mask_b + (size_t)get_group_id(1) * mask_h;
    if (item < LOOKERS / 16) shows[item] = adds[item] = 0;
    if (item < LOOK_WORDS) rows[item] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    const int t = look * LOOKERS + item;
    uint mine[LOOK_WORDS], any = 0;
    for (int w = 0; w < LOOK_WORDS; ++w) mine[w] = 0;
    bool is_changed = false;
    if (t < T) {
        #pragma unroll 16
        for (int r = 0; r < BLOCK; ++r) {
            const float m = LOAD_MASK(mask, (size_t)min(s0 + r, S - 1) * mask_s + t);
            mine[r / 32] |= (uint)!(m < HIDDEN) << r % 32;
            is_changed |= m != 0;
        }
    }
    for (int w = 0; w < LOOK_WORDS; ++w) {
        any |= mine[w];
        if (mine[w]) atomic_or(rows + w, mine[w]);
    }
    if (any) shows[item / TURN] = 1;
    if (is_changed) adds[item / TURN] = 1;
    barrier(CLK_LOCAL_MEM_FENCE);
    const int turn = look * (LOOKERS / TURN) + item;
    if (item < LOOKERS / TURN && turn < turns) kinds[at * turns + turn] = !shows[item] ? HIDES : adds[item] ? ADDS : LEAVES;
    if (item < LOOK_WORDS) seen[(at * looks + look) * LOOK_WORDS + item] = rows[item];
}

// Whether each query of a block sees a key.
static inline bool all_see(global const uint *seen, int looks) {
    bool all = true;
    for (int w = 0; w < LOOK_WORDS; ++w) {
        uint found = 0;
        for (int i = 0; i < looks; ++i) found |= seen[i * LOOK_WORDS + w];
        all &= found == BLOCK_ROWS(w);
    }
    return all;
}
#endif
