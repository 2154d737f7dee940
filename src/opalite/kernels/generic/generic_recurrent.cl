// LSTM, GRU and RNN (ops/recurrent.py) with everything that differs between layers as an argument.
//   kind         0 lstm (gates i, o, f, c), 1 gru (z, r, h), 2 rnn
//   functions    (number, alpha, beta) of each direction's activations in turn, `each` of a direction; 0 is no clip
//   reverse      the only direction runs backward     reset_late  gru's linear_before_reset     coupled  lstm's input_forget
// Generated in front (generic_recurrent.py): ACTIVATIONS, the cases of the switch, in vectors of UNITS; ITEMS of a work-group, and
// MEET, a barrier at which these wait for each other if there are several. A work-group processes one direction of one sequence;
// its items split the units, UNITS (1 or PACK) adjacent ones at a time. LINES: of inputs that an item multiplies by UNITS rows of w.
#include "include/no_inline.cl"
#include "include/reduce_lanes.cl"
#ifndef ACTIVATIONS
#define ACTIVATIONS
#define MEET
#define ITEMS 1
#define UNITS 1
#define LINES 1
#endif
#define UNITV VEC_T(float, UNITS)

// Products of v with rows `first` to `first` + UNITS - 1 of `rows` rows of a matrix, all of n elements; beyond the last row, with that.
static UNITV dot_rows(global const float *v, global const float *matrix, int first, int rows, int n) {
    COMPILED_ONCE_AS(n, (UNITV)0)
#if UNITS == 1
    global const float *row = matrix + (size_t)first * n;
    ACCV part = (ACCV)0;
    int i = 0;
    #pragma nounroll
    for (; i + PACK <= n; i += PACK) part = fma(LOADV(row, i), LOADV(v, i), part);
    float sum = SUM_LANES(part);
    #pragma nounroll
    for (; i < n; ++i) sum = fma(row[i], v[i], sum);
    return sum;
#else
    UNITV sums;
    #pragma nounroll
    for (int u = 0; u < UNITS; u += 4) {
        global const float *row0 = matrix + (size_t)min(first + u, rows - 1) * n, *row1 = matrix + (size_t)min(first + u + 1, rows - 1) * n;
        global const float *row2 = matrix + (size_t)min(first + u + 2, rows - 1) * n, *row3 = matrix + (size_t)min(first + u + 3, rows - 1) * n;
        ACCV part0 = (ACCV)0, part1 = (ACCV)0, part2 = (ACCV)0, part3 = (ACCV)0;
        int i = 0;
        #pragma nounroll
        for (; i + PACK <= n; i += PACK) {
            const ACCV x = LOADV(v, i);
            part0 = fma(LOADV(row0, i), x, part0);
            part1 = fma(LOADV(row1, i), x, part1);
            part2 = fma(LOADV(row2, i), x, part2);
            part3 = fma(LOADV(row3, i), x, part3);
        }
        float4 four = (float4)(SUM_LANES(part0), SUM_LANES(part1), SUM_LANES(part2), SUM_LANES(part3));
        #pragma nounroll
        for (; i < n; ++i) four = fma((float4)(row0[i], row1[i], row2[i], row3[i]), (float4)v[i], four);
        ((float4 *)&sums)[u / 4] = four;
    }
    return sums;
#endif
}

// The first `count` of UNITS elements; of fewer, the others are the last one.
static inline UNITV load_units(global const float *p, int count) {
#if UNITS == 1
    return p[0];
#else
    if (count >= UNITS) return LOADV(p, 0);
    UNITV found;
    #pragma nounroll
    for (int u = 0; u < UNITS; ++u) ((float *)&found)[u] = p[min(u, count - 1)];
    return found;
#endif
}

static inline void store_units(UNITV v, global float *p, int count) {
#if UNITS == 1
    p[0] = v;
#else
    if (count >= UNITS) {
        STOREV(p, 0, v);
        return;
    }
    #pragma nounroll
    for (int u = 0; u < count; ++u) p[u] = ((const float *)&v)[u];
#endif
}

static UNITV activate(UNITV x, global const float *function, float clip) {
    const int number = (int)function[0];
    COMPILED_ONCE_AS(number, x)
    const UNITV alpha = function[1], beta = function[2];
    if (clip > 0) x = fmin(fmax(x, (UNITV)(-clip)), (UNITV)clip);
    switch (number) {
        ACTIVATIONS
    }
    return x;
}

#define INPUT_PARAMETERS \
    global const float *x, global const float *w, global const float *b, global float *z, int lines, int inputs, int hidden, \
    int rows, int directions, int has_bias, int reset_late

// z[line, direction, gate row] = w . x, and the biases that no gate acts on.
static void input_sums(int block, int group, INPUT_PARAMETERS) {
    COMPILED_ONCE(lines)
    const int all = directions * rows, first = block * UNITS, count = min(UNITS, all - first);
    if (count <= 0) return;
    float own[UNITS];
    #pragma nounroll
    for (int u = 0; u < UNITS; ++u) {
        const int row = min(first + u, all - 1), d = row / rows, g = row - d * rows;
        global const float *of = b + (size_t)d * 2 * rows;
        own[u] = has_bias ? of[g] + (reset_late && g >= 2 * hidden ? 0.0f : of[rows + g]) : 0.0f;
    }
    const UNITV biases = VLOAD(UNITS, 0, own);
    #pragma nounroll
    for (int line = group * LINES; line < min((group + 1) * LINES, lines); ++line) {
        const UNITV sums = dot_rows(x + (size_t)line * inputs, w, first, all, inputs);
        store_units(sums + biases, z + (size_t)line * all + first, count);
    }
}

kernel void recurrent_general_inputs(INPUT_PARAMETERS) {
    input_sums(get_global_id(0), get_global_id(1), x, w, b, z, lines, inputs, hidden, rows, directions, has_bias, reset_late);
}

#define PARAMETERS \
    global const float *z, global const float *r, global const float *b, global const int *lens, global const float *h0, \
    global const float *c0, global const float *peep, global const float *functions, global float *state, global float *cell, \
    global float *reset, global float *y, global float *yh, global float *yc, int steps, int batch, int hidden, int rows, \
    int directions, int kind, int each, int reverse, int reset_late, int coupled, int has_bias, int has_lens, int has_h0, \
    int has_c0, int has_peep, float clip
#define ARGUMENTS \
    z, r, b, lens, h0, c0, peep, functions, state, cell, reset, y, yh, yc, steps, batch, hidden, rows, directions, kind, each, \
    reverse, reset_late, coupled, has_bias, has_lens, has_h0, has_c0, has_peep, clip
// The input of activation 2, an lstm's cell, is not clipped.
#define ACT(i, v) activate(v, functions + 3 * (d * each + (i)), (i) == 2 ? 0.0f : clip)
#define SUMS(v, g) dot_rows(v, rd, (g) * hidden + j, (g) * hidden + hidden, hidden)
#define GATE(g) (load_units(zt + (g) * hidden + j, left) + SUMS(h, g))
#define PEEP(g, c) (has_peep ? load_units(pd + (g) * hidden + j, left) * (c) : (UNITV)0)
#define EACH_UNIT _Pragma("nounroll") for (int j = first * UNITS, left; left = hidden - j, left > 0; j += ITEMS * UNITS)

// state: h of two steps in turn; cell: c; reset: r * h, or r (gru); all [direction, batch, hidden].
static void walk_sequence(int first, int n, int d, PARAMETERS) {
    COMPILED_ONCE(hidden)
    const size_t own = ((size_t)d * batch + n) * hidden;
    global const float *rd = r + (size_t)d * rows * hidden, *pd = peep + (size_t)d * 3 * hidden;
    global float *h = state + own, *next = h + (size_t)directions * batch * hidden;
    cell += own;
    reset += own;
    const int count = has_lens ? clamp(lens[n], 0, steps) : steps;
    EACH_UNIT {
        store_units(has_h0 ? load_units(h0 + own + j, left) : (UNITV)0, h + j, left);
        store_units(has_c0 ? load_units(c0 + own + j, left) : (UNITV)0, cell + j, left);
        #pragma nounroll
        for (int t = count; t < steps; ++t)
            store_units((UNITV)0, y + (((size_t)t * directions + d) * batch + n) * hidden + j, left);
    }
    MEET
    #pragma nounroll
    for (int k = 0; k < count; ++k) {
        const int t = reverse || d == 1 ? count - 1 - k : k;
        global const float *zt = z + (((size_t)t * batch + n) * directions + d) * rows;
        global float *out = y + (((size_t)t * directions + d) * batch + n) * hidden;
        if (kind == 1) {
            EACH_UNIT {
                const UNITV gate = ACT(0, GATE(1));
                store_units(reset_late ? gate : gate * load_units(h + j, left), reset + j, left);
            }
            MEET
        }
        EACH_UNIT {
            UNITV made;
            if (kind == 0) {
                const UNITV c = load_units(cell + j, left);
                const UNITV in = ACT(0, GATE(0) + PEEP(0, c));
                const UNITV kept = coupled ? 1 - in : ACT(0, GATE(2) + PEEP(2, c));
                const UNITV c_new = kept * c + in * ACT(1, GATE(3));
                store_units(c_new, cell + j, left);
                made = ACT(0, GATE(1) + PEEP(1, c_new)) * ACT(2, c_new);
            } else if (kind == 1) {
                UNITV inner = SUMS(reset_late ? h : reset, 2);
                if (reset_late) {
                    if (has_bias) inner += load_units(b + ((size_t)d * 2 + 1) * rows + 2 * hidden + j, left);
                    inner *= load_units(reset + j, left);
                }
                const UNITV u = ACT(0, GATE(0));
                made = (1 - u) * ACT(1, load_units(zt + 2 * hidden + j, left) + inner) + u * load_units(h + j, left);
            } else {
                made = ACT(0, GATE(0));
            }
            store_units(made, next + j, left);
            store_units(made, out + j, left);
        }
        MEET
        global float *swap = h;
        h = next;
        next = swap;
    }
    EACH_UNIT {
        // A sequence without a step has states of zero, whatever its initial state.
        store_units(count ? load_units(h + j, left) : (UNITV)0, yh + own + j, left);
        if (kind == 0) store_units(count ? load_units(cell + j, left) : (UNITV)0, yc + own + j, left);
    }
}

kernel void recurrent_general(PARAMETERS) {
    walk_sequence(get_global_id(0), get_global_id(1), get_global_id(2), ARGUMENTS);
}
