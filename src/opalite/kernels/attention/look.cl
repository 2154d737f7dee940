// What a mask does to TURN keys for 16 * QW queries: HIDES all of them, while each of these queries sees some other key, so that
// they count for nothing; LEAVES all scores as they are; or ADDS to some. Queries that see no key weigh all alike, or none,
// as the mask's lowest number says, and then nothing is passed over. Work-groups of LOOKERS, one for 16 * QW queries, an
// entry of the mask along H and one along B. Grid: (ceil(S / (16 * QW)) * LOOKERS, heads, batches of the mask).
#define HIDES 0
#define LEAVES 1
#define ADDS 2
#if LOOK
#define LOOKERS 256
#define HIDDEN -1e30f  // far below all scores of halves
#define ROWS_UNSEEN(first) (16 * QW > (first) ? 16 * QW >= (first) + 32 ? 0xffffffffu : 0xffffu : 0u)

__attribute__((reqd_work_group_size(LOOKERS, 1, 1)))
kernel void look_at_mask(global const MASK_REAL *restrict mask, global uchar *restrict kinds, int S, int T, int turns, int kinds_b,
                         int kinds_h, int mask_b, int mask_h, int mask_s) {
    local int sees[LOOKERS / 16], adds[LOOKERS / 16];
    local uint unseen[2];
    const int item = get_local_id(0), s0 = get_group_id(0) * (16 * QW);
    mask += (size_t)get_group_id(2) * mask_b + (size_t)get_group_id(1) * mask_h;
    kinds += (size_t)get_group_id(2) * kinds_b + (size_t)get_group_id(1) * kinds_h + (size_t)get_group_id(0) * turns;
    uint rows[2] = {0, 0};  // a bit for each that sees one of this work-item's keys
    if (item < 2) unseen[item] = ROWS_UNSEEN(32 * item);
    for (int t0 = 0; t0 < T; t0 += LOOKERS) {
        if (item < LOOKERS / 16) sees[item] = adds[item] = 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        const int t = t0 + item;
        if (t < T) {
            bool is_seen = false, is_changed = false;
            #pragma unroll 16
            for (int r = 0; r < 16 * QW; ++r) {
                const float m = LOAD_MASK(mask, (size_t)min(s0 + r, S - 1) * mask_s + t);
                const bool shows = !(m < HIDDEN);
                rows[r / 32] |= (uint)shows << r % 32;
                is_seen |= shows;
                is_changed |= m != 0;
            }
            if (is_seen) sees[item / TURN] = 1;
            if (is_changed) adds[item / TURN] = 1;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        const int turn = t0 / TURN + item;
        if (item < LOOKERS / TURN && turn < turns) kinds[turn] = !sees[item] ? HIDES : adds[item] ? ADDS : LEAVES;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    atomic_and(unseen, ~rows[0]);
    atomic_and(unseen + 1, ~rows[1]);
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (unseen[0] | unseen[1])
        for (int turn = item; turn < turns; turn += LOOKERS)
            if (kinds[turn] == HIDES) kinds[turn] = ADDS;
}
#endif
