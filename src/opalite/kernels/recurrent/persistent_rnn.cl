// The walk over time of LSTM, GRU and RNN layers by work-groups that hold all recurrent weights between them, in registers
// if they fit; z, the inputs' share of the gates, is known for all steps. The units of the hidden state are divided into
// `shares` of BLOCK, padded with zeros:
//   z[T, B, D, shares, GATES, BLOCK]   r[D, shares, CHUNKS, GATES, BLOCK, WAYS, 4]
//   bias[D, shares, GATES + RESET_LATE, BLOCK]   peep[D, shares, 3, BLOCK]
// A work-group serves NB sequences of one direction, and every get_num_groups(0)-th share from its own on. It has a row of
// WAYS work-items for each gate of each unit of a share: a work-item multiplies every WAYS-th four numbers of the state.
// A step is one tick, or two where the state that the last gate sees is known only after the others. A launch takes the
// ticks from `first` to `last`. What others have to know is in `states`[4][D][B][H]: h after an even and an odd number of
// steps, c of an LSTM or the update gate of a GRU, and r * h.
//   MEETS    after each tick the groups wait for each other, so all of them must run at once. `sync` has the word that one
//            sets who waits in vain, upon which all leave, and how many groups have come so far: a word for each direction
//            of each NB sequences.
//   REPAIRS  a launch that computes it all again if somebody has waited in vain, and else does nothing
//   HELD     a group has one share, and its weights in registers
// Grid: ITEMS * groups, D, ceil(B / NB).
#ifndef KIND
#include "recurrent/rnn_defaults.cl"
#define BLOCK 1
#define WAYS 1
#define CHUNKS 1
#define NB 1
#define HELD 0
#define MEETS 0
#define REPAIRS 0
#endif
#define GIVEN local const ACC
#define TAKE(p, i) ((p)[i])
#include "recurrent/rnn_cell.cl"
#define ROWS (GATES * BLOCK)
#define ITEMS (ROWS * WAYS)
#define WIDE (CHUNKS * WAYS * 4)
#define PASSES (1 + TWO_PASSES)
#define BIASES ((GATES + RESET_LATE) * BLOCK)
typedef VEC_T(ACC, 4) FOUR;
#define EACH_SEQUENCE _Pragma("unroll") for (int n = 0; n < NB; ++n)
#define COUNT(n) (HAS_LENS ? clamp(lens[n0 + (n)], 0, T) : T)
#define WEIGHTS_AT(j) (r + ((size_t)(g * CHUNKS + (j)) * ITEMS + item) * 4)
#if defined(HALF_AS_FLOAT)
#define LOAD_WEIGHTS(j) load_half4(WEIGHTS_AT(j))
#elif STORAGE == 0 || STORAGE == 2
#define LOAD_WEIGHTS(j) (*(global const FOUR *)WEIGHTS_AT(j))
#else
#define LOAD_WEIGHTS(j) LOADN(4, WEIGHTS_AT(j), 0)
#endif

#if MEETS
#define PATIENCE (1 << 22)  // looks at a word in memory, each of which takes about a microsecond
static inline uint look(global const uint *word) {
    uint seen;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(word) : "memory");
    return seen;
}
#define FENCE asm volatile("fence.acq_rel.gpu;" ::: "memory")

// Waits until groups have come `wanted` times in all; whether they have. What they wrote before is then to be seen.
static inline bool meet(global uint *come, uint wanted, global uint *failed, int item, local uint *late) {
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (item == 0) {
        FENCE;
        atomic_inc((volatile global uint *)come);
        int looks = 0;
        while (look(come) < wanted && looks < PATIENCE && !((++looks & 1023) == 0 && look(failed))) {}
        if (looks >= PATIENCE) atomic_inc((volatile global uint *)failed);
        *late = look(come) < wanted;
        FENCE;
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    return *late == 0;
}
#endif

// Nobody has come; `failed`: whether somebody has waited in vain, for tests.
kernel void recurrent_begin(global uint *sync, int count, uint failed) {
    const int i = get_global_id(0);
    if (i < count) sync[i] = i == 0 ? failed : 0;
}

__attribute__((reqd_work_group_size(ITEMS, 1, 1)))
kernel void recurrent_resident(global const REAL *z, global const REAL *r, global const REAL *bias,
                               global const REAL *peep, global const int *lens, global const REAL *h0,
                               global const REAL *c0, global REAL *y, global REAL *yh, global REAL *yc,
                               global ACC *states, global uint *sync, int T, int B, int H, int directions, int shares,
                               int first, int last, local FOUR *work) {
#if MEETS
    local uint late;  // an unused one ends PoCL 5's compiler
#endif
#if REPAIRS
    if (sync[0] == 0) return;
#endif
    const int item = get_local_id(0), lane = item % WAYS, row = item / WAYS, groups = get_num_groups(0);
    const int d = get_group_id(1), n0 = get_group_id(2) * NB, sequences = min(NB, B - n0);
    const bool backward = BACKWARD || d == 1;
    const size_t lines = (size_t)directions * B, all = lines * H;  // of H elements in a step of y; of one of the states
    const size_t own = ((size_t)d * B + n0) * H;                   // of this group in h0, c0, yh, yc and a state
    global ACC *kept = states + 2 * all + own, *product = states + 3 * all + own;
    local ACC *seen = (local ACC *)work;              // [NB][WIDE]: the state that is multiplied
    local ACC *part = seen + NB * WIDE;               // [NB][WAYS][ROWS + 1]
    local ACC *sums = part + NB * WAYS * (ROWS + 1); // [NB][ROWS]
    local ACC *given = sums + NB * ROWS;              // [NB][ROWS]: of z
    local ACC *added = given + NB * ROWS;             // [BIASES]
    local ACC *holes = added + BIASES;                // [3][BLOCK]: of peep
    r += (size_t)d * shares * CHUNKS * ITEMS * 4;
    // A work-item adds up a row of a sequence, and then is at most one unit of one.
    const int at = item / ROWS, gate_row = item % ROWS, n = item / BLOCK, unit = item % BLOCK;
    const int length = at < sequences ? COUNT(at) : 0, count = n < sequences ? COUNT(n) : 0;
    int longest = 0;
    for (int i = 0; i < sequences; ++i) longest = max(longest, COUNT(i));

    if (first == 0)  // steps past a sequence's end are zero
        for (int g = get_group_id(0); g < shares; g += groups)
            for (int t = count; n < sequences && g * BLOCK + unit < H && t < T; ++t)
                STORE(y, (t * lines + d * B + n0 + n) * H + g * BLOCK + unit, (ACC)0);
#if HELD
    const int g = get_group_id(0);
    FOUR held[CHUNKS];
    #pragma unroll
    for (int j = 0; j < CHUNKS; ++j) held[j] = LOAD_WEIGHTS(j);
#define WEIGHTS(j) held[j]
#else
#define WEIGHTS(j) LOAD_WEIGHTS(j)
#endif
    const int end = min(last, longest * PASSES);
    for (int tick = first; tick < end; ++tick) {
        const int k = tick / PASSES, pass = tick % PASSES;
        global const ACC *before = states + (k & 1) * all + own;
        global ACC *after = states + (1 - (k & 1)) * all + own;
        for (int i = item; i < NB * WIDE; i += ITEMS) {
            const int m = i / WIDE, u = i % WIDE;
            ACC h = 0;
            if (m < sequences && u < H) {
                const size_t from = (size_t)m * H + u;
                if (pass) h = product[from];
                else if (k) h = before[from];
                else if (HAS_H0) h = LOAD(h0, own + from);
            }
            seen[i] = h;
        }
#if !HELD
        for (int g = get_group_id(0); g < shares; g += groups)
#endif
        {
            // Loads from global memory come first.
            const int u = g * BLOCK + unit;
            const bool is_unit = n < sequences && u < H;
            const size_t place = (size_t)n * H + u;
            ACC input = 0, cell = 0, old = 0;
            if (k < length) {
                const size_t t = backward ? length - 1 - k : k;
                input = LOAD(z, (((t * B + n0 + at) * directions + d) * shares + g) * ROWS + gate_row);
            }
            if (is_unit) {
                if (KIND == 0 && k == 0) cell = HAS_C0 ? LOAD(c0, own + place) : (ACC)0;
                else if (KIND == 0 || pass) cell = kept[place];
                old = k ? before[place] : HAS_H0 ? LOAD(h0, own + place) : (ACC)0;
            }
            for (int i = item; i < BIASES && HAS_BIAS; i += ITEMS)
                added[i] = LOAD(bias, (size_t)(d * shares + g) * BIASES + i);
            for (int i = item; i < 3 * BLOCK && HAS_PEEP; i += ITEMS)
                holes[i] = LOAD(peep, (size_t)(d * shares + g) * 3 * BLOCK + i);
            barrier(CLK_LOCAL_MEM_FENCE);
            FOUR sum[NB];
            EACH_SEQUENCE sum[n] = (FOUR)0;
            #pragma unroll
            for (int j = 0; j < CHUNKS; ++j) {
                const FOUR w = WEIGHTS(j);
                EACH_SEQUENCE sum[n] += w * work[n * WIDE / 4 + j * WAYS + lane];
            }
            EACH_SEQUENCE part[(n * WAYS + lane) * (ROWS + 1) + row] = (sum[n].x + sum[n].y) + (sum[n].z + sum[n].w);
            if (at < NB) given[item] = input;
            barrier(CLK_LOCAL_MEM_FENCE);
            if (at < NB) {
                ACC whole = 0;
                #pragma unroll
                for (int l = 0; l < WAYS; ++l) whole += part[(at * WAYS + l) * (ROWS + 1) + gate_row];
                sums[item] = whole;
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            if (is_unit) {
                local const ACC *mine = sums + n * ROWS + unit, *its = given + n * ROWS + unit;
                ACC s[GATES];
                #pragma unroll
                for (int i = 0; i < GATES; ++i) s[i] = mine[i * BLOCK];
#if TWO_PASSES
                if (pass == 0 && k < count) {
                    kept[place] = ACT(0, gate(0, s[0], its, added + unit), d);
                    product[place] = ACT(0, gate(1, s[1], its, added + unit), d) * old;
                }
                if (pass)
#endif
                {
                    ACC state = old;
                    if (k < count) {
                        const size_t t = backward ? count - 1 - k : k;
                        state = next_state(s + GATES - LAST_GATES, state, &cell, its, added + unit, holes + unit, d);
                        state = NORMAL(state);
                        if (KIND == 0) kept[place] = cell;
                        STORE(y, (t * lines + d * B + n0 + n) * H + u, state);
                    }
                    after[place] = state;
                }
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
#if MEETS
        // No one reads `late` of the meeting before while it is written: barriers lie between.
        const uint set = get_group_id(2) * directions + d;
        if (tick + 1 < end && !meet(sync + 1 + set, (uint)(tick + 1) * groups, sync, item, &late)) return;
#else
        barrier(CLK_GLOBAL_MEM_FENCE);
#endif
    }
    if (last < T * PASSES) return;
    // A sequence without a step has states of zero, whatever its initial state.
    global const ACC *h = states + (longest & 1) * all + own;
#if !HELD
    for (int g = get_group_id(0); g < shares; g += groups)
#endif
    {
        const int u = g * BLOCK + unit;
        const size_t place = (size_t)n * H + u;
        if (n < sequences && u < H) {
            STORE(yh, own + place, count ? h[place] : (ACC)0);
            if (KIND == 0) STORE(yc, own + place, count ? kept[place] : (ACC)0);
        }
    }
}
