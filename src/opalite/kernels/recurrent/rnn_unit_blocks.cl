// The walk over time of LSTM, GRU and RNN layers with constant weights; z, the inputs' share of the gates, is known for
// all steps. Units of the hidden state lie in blocks of BLOCK, padded with zeros:
//   z[T, B, D, blocks, GATES, BLOCK]   r[D, blocks, H, GATES, BLOCK]   bias[D, blocks, GATES + RESET_LATE, BLOCK]
//   peep[D, blocks, 3, BLOCK]
// With TEXELS r is read as texels of its buffer, of which each has all gates of a unit for KEPT elements of the state:
//   r[D, blocks, ceil(H / KEPT), BLOCK, KEPT, 4], zeros past H and GATES
// A work-group of LX x LY work-items serves NB sequences of one direction and `span` of the units: LX side by side
// along them, PACK units each (a whole block, or one), LY sharing the sums over the state. It takes the steps from
// `first` to `last`. With SHARED no group has all units; a launch is one step, or one of a step's two `pass`es, and
// leaves what the next has to know of all units in `states`[4][D][B][H]: h after an even and an odd number of steps,
// c of an LSTM or the update gate of a GRU, and r * h.
// Grid: LX * ceil(units / span), LY * ceil(B / NB), D.
//   KIND 0 lstm (gates i, o, f, c), 1 gru (z, r, h), 2 rnn     RESET_LATE  gru's linear_before_reset
//   COUPLED  lstm's input_forget     ACT(i, v, d)  activation i of direction d
//   ROUNDS  the gates of an lstm see h rounded to 8 bits; the NB sequences are all there are
#ifndef KIND
#include "recurrent/rnn_defaults.cl"
#define BLOCK PACK
#define LX 1
#define LY 1
#define NB 1
#define SHARED 0
#endif
#include "include/texel_buffer.cl"
#if TEXELS
#define RECURRENT QUADS(r)
#define KEPT (STORAGE == 1 ? 2 : 1)
#else
#define RECURRENT global const REAL *r
#endif
#define GIVEN global const REAL
#define TAKE(p, i) LOADV(p, i)
#include "recurrent/rnn_cell.cl"
#if ROUNDS
#include "recurrent/rnn_rounding.cl"
#endif
#define ITEM ((int)(get_local_id(1) * LX + get_local_id(0)))
#define ITEMS (LX * LY)
#define EACH_SEQUENCE _Pragma("unroll") for (int n = 0; n < NB; ++n)
// Offset of unit u in an array of `rows` rows for each block.
#define AT(u, rows) ((u) / BLOCK * (rows) * BLOCK + (u) % BLOCK)

// sum[n][g] = sum over k of h[n][k] * r[k][from + g][u] for `count` gates. With LY > 1 the first work-item of each unit
// gets it, through `part`, and all work-items of the group must get here.
static inline void project(local const ACC *h, int units, RECURRENT, int d, int H, int u, int from, int count,
                           ACCV *sum, local ACC *part) {
#if TEXELS
    #pragma unroll
    for (int i = 0; i < NB * count; ++i) sum[i] = (ACCV)0;
    if (u < units) {
        const int rows = (H + KEPT - 1) / KEPT, first = (d * (units / BLOCK) + u / BLOCK) * rows * BLOCK + u % BLOCK;
        for (int row = get_local_id(1); row < rows; row += LY) {
            const uint4 quad = READ_QUAD(r, first + row * BLOCK);
            float w[KEPT * 4];
            #pragma unroll
            for (int l = 0; l < KEPT; ++l) {
#if STORAGE == 1
                vstore4(vload_half4(l, (const half *)&quad), l, w);
#else
                vstore4(as_float4(quad), l, w);
#endif
                #pragma unroll
                for (int g = 0; g < count; ++g)
                    EACH_SEQUENCE sum[n * count + g] += w[l * 4 + from + g] * h[n * units + row * KEPT + l];
            }
        }
    }
#else
    ACCV odd[NB * GATES];
    #pragma unroll
    for (int i = 0; i < NB * count; ++i) sum[i] = odd[i] = (ACCV)0;
    if (u < units) {
        r += (size_t)(u / BLOCK) * H * GATES * BLOCK + from * BLOCK + u % BLOCK;
        int k = get_local_id(1);
        #pragma unroll 2
        for (; k + LY < H; k += 2 * LY) {
            #pragma unroll
            for (int g = 0; g < count; ++g) {
                const ACCV a = LOADV(r, (k * GATES + g) * BLOCK), b = LOADV(r, ((k + LY) * GATES + g) * BLOCK);
                EACH_SEQUENCE {
                    sum[n * count + g] += a * h[n * units + k];
                    odd[n * count + g] += b * h[n * units + k + LY];
                }
            }
        }
        #pragma unroll
        for (int g = 0; g < count; ++g) {
            const ACCV a = k < H ? LOADV(r, (k * GATES + g) * BLOCK) : (ACCV)0;
            EACH_SEQUENCE sum[n * count + g] += odd[n * count + g] + a * h[n * units + (k < H ? k : 0)];
        }
    }
#endif
#if LY > 1
    for (int i = 0; i < NB * count; ++i) VSTORE(PACK, sum[i], (i * ITEMS + ITEM) * PACK, part);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (get_local_id(1) == 0)
        for (int i = 0; i < NB * count; ++i)
            for (int l = 1; l < LY; ++l) sum[i] += VLOAD(PACK, (i * ITEMS + l * LX + ITEM) * PACK, part);
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
}

// Stores the units from u on, up to H.
static inline void store_units(global REAL *p, int u, int H, ACCV v) {
    if (u + PACK <= H) {
        STOREV(p, u, v);
    } else {
        ACC lanes[PACK];
        VSTORE(PACK, v, 0, lanes);
        for (int l = 0; u + l < H; ++l) STORE(p, u + l, lanes[l]);
    }
}

// out[NB][units] = p[NB][H] for the units from `begin` to `end`, zeros past H, past `count` sequences or with no p.
static inline void load_state(local ACC *out, global const REAL *p, bool given, int count, int units, int H, int begin,
                              int end) {
    for (int n = 0; n < NB; ++n)
        for (int u = begin + ITEM; u < end; u += ITEMS)
            out[n * units + u] = given && n < count && u < H ? LOAD(p, (size_t)n * H + u) : (ACC)0;
}

// The same of what a launch before has left.
static inline void take_state(local ACC *out, global const ACC *p, int count, int units, int H, int begin, int end) {
    for (int n = 0; n < NB; ++n)
        for (int u = begin + ITEM; u < end; u += ITEMS)
            out[n * units + u] = n < count && u < H ? p[(size_t)n * H + u] : (ACC)0;
}

__attribute__((reqd_work_group_size(LX, LY, 1)))
kernel void recurrent_blocks(global const REAL *z, RECURRENT, global const REAL *bias,
                             global const REAL *peep, global const int *lens, global const REAL *h0,
                             global const REAL *c0, global REAL *y, global REAL *yh, global REAL *yc,
                             global ACC *states, int T, int B, int H, int directions, int span, int first, int last,
                             int pass, local ACC *work) {
    const int n0 = get_group_id(1) * NB, d = get_group_id(2), sequences = min(NB, B - n0);
    const int units = (H + BLOCK - 1) / BLOCK * BLOCK;
    const int begin = get_group_id(0) * span, end = min(units, begin + span);
    const bool backward = BACKWARD || d == 1;
    const size_t own = ((size_t)d * B + n0) * H;  // of this group's states in h0, c0, yh and yc
    const size_t lines = (size_t)directions * B;  // of H elements in one step of y
    local ACC *h = work;                          // [NB][units]
    local ACC *next = h + NB * units;             // [NB][units]
    local ACC *cell = next + NB * units;          // [NB][units], see next_state
    local ACC *reset = cell + NB * units;         // [NB][units]: r * h, between a GRU's passes; rounded h
    local ACC *part = reset + NB * units;         // of project
#if !TEXELS
    r += (size_t)d * units * H * GATES;
#endif
    bias += (size_t)d * units * (GATES + RESET_LATE);
    peep += (size_t)d * units * 3;

    int count[NB], longest = 0;
    EACH_SEQUENCE {
        count[n] = n >= sequences ? 0 : HAS_LENS ? clamp(lens[n0 + n], 0, T) : T;
        longest = max(longest, count[n]);
        // Steps past a sequence's end are zero.
        if (n < sequences && first == 0 && pass == 0)
            for (int t = count[n]; t < T; ++t)
                for (int u = begin + ITEM; u < min(end, H); u += ITEMS)
                    STORE(y, (t * lines + d * B + n0 + n) * H + u, (ACC)0);
    }
#if SHARED
    const size_t all = lines * H;  // elements of one of the states
    global ACC *before = states + (first & 1) * all + own, *after = states + (last & 1) * all + own;
    global ACC *kept = states + 2 * all + own, *product = states + 3 * all + own;
#endif
    if (first == 0) {
        load_state(h, h0 + own, HAS_H0, sequences, units, H, 0, units);
        load_state(cell, c0 + own, HAS_C0, sequences, units, H, begin, end);
    } else {
#if SHARED
        take_state(h, before, sequences, units, H, 0, units);
        if (KIND == 0) take_state(cell, kept, sequences, units, H, begin, end);
#endif
    }
#if SHARED && TWO_PASSES
    if (pass == 1) {
        take_state(reset, product, sequences, units, H, 0, units);
        take_state(cell, kept, sequences, units, H, begin, end);
    }
#endif
    barrier(CLK_LOCAL_MEM_FENCE);

    for (int k = first; k < min(last, longest); ++k) {
        global const REAL *gates[NB];
        EACH_SEQUENCE {
            const int t = max(0, backward ? count[n] - 1 - k : k);
            gates[n] = z + ((size_t)t * B + n0 + n) * directions * units * GATES + (size_t)d * units * GATES;
        }
#if TWO_PASSES
        for (int base = begin; base < end && pass == 0; base += LX * PACK) {
            const int u = base + get_local_id(0) * PACK;
            ACCV sum[NB * 2];
            project(h, units, r, d, H, u, 0, 2, sum, part);
            if (get_local_id(1) > 0 || u >= end) continue;
            EACH_SEQUENCE {
                if (k >= count[n]) continue;
                const int at = n * units + u;
                const ACCV state = VLOAD(PACK, at, h);
                const ACCV z = gate(0, sum[n * 2], gates[n] + AT(u, GATES), bias + AT(u, GATES));
                const ACCV r = gate(1, sum[n * 2 + 1], gates[n] + AT(u, GATES), bias + AT(u, GATES));
                VSTORE(PACK, ACT(0, z, d), at, cell);
                VSTORE(PACK, ACT(0, r, d) * state, at, reset);
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
#if SHARED
        if (pass == 0) break;
#endif
        local const ACC *seen = reset;
#elif ROUNDS
        // Every work-item finds the range, of what is zero past a sequence's end.
        ACC low = 0, high = 0;
        for (int n = 0; n < sequences; ++n)
            for (int u = 0; k <= count[n] && u < H; ++u) {
                low = min(low, h[n * units + u]);
                high = max(high, h[n * units + u]);
            }
        for (int i = ITEM; i < NB * units; i += ITEMS) reset[i] = round_state(h[i], low, high);
        barrier(CLK_LOCAL_MEM_FENCE);
        local const ACC *seen = reset;
#else
        local const ACC *seen = h;
#endif
        for (int base = begin; base < end; base += LX * PACK) {
            const int u = base + get_local_id(0) * PACK;
            ACCV sum[NB * LAST_GATES];
            project(seen, units, r, d, H, u, GATES - LAST_GATES, LAST_GATES, sum, part);
            if (get_local_id(1) > 0 || u >= end) continue;
            EACH_SEQUENCE {
                const int at = n * units + u;
                ACCV state = VLOAD(PACK, at, h);
                if (k < count[n]) {
                    const int t = backward ? count[n] - 1 - k : k;
                    ACCV c = VLOAD(PACK, at, cell);
                    state = next_state(sum + n * LAST_GATES, state, &c, gates[n] + AT(u, GATES),
                                       bias + AT(u, GATES + RESET_LATE), peep + AT(u, 3), d);
                    state = NORMAL(state);
                    VSTORE(PACK, c, at, cell);
                    store_units(y + (t * lines + d * B + n0 + n) * H, u, H, state);
                }
                VSTORE(PACK, state, at, next);
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        local ACC *old = h;
        h = next;
        next = old;
    }

    for (int n = 0; n < sequences; ++n)
        for (int u = begin + ITEM; u < min(end, H); u += ITEMS) {
            const size_t at = (size_t)n * H + u;
#if SHARED
#if TWO_PASSES
            if (pass == 0) {
                kept[at] = cell[n * units + u];
                product[at] = reset[n * units + u];
                continue;
            }
#endif
            after[at] = h[n * units + u];
            if (KIND == 0) kept[at] = cell[n * units + u];
#endif
            if (last < T) continue;
            // A sequence without a step has states of zero, whatever its initial state.
            STORE(yh, own + at, count[n] ? h[n * units + u] : (ACC)0);
            if (KIND == 0) STORE(yc, own + at, count[n] ? cell[n * units + u] : (ACC)0);
        }
}
