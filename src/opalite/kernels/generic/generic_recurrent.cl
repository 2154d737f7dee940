// LSTM, GRU and RNN (ops/recurrent.py) with everything that differs between layers as an argument.
//   kind         0 lstm (gates i, o, f, c), 1 gru (z, r, h), 2 rnn
//   functions    (number, alpha, beta) of each direction's activations in turn, `each` of a direction; 0 is no clip
//   reverse      the only direction runs backward     reset_late  gru's linear_before_reset     coupled  lstm's input_forget
// Generated in front (generic_recurrent.py): ACTIVATIONS, the cases of the switch; ITEMS of a work-group, and MEET, a barrier at which these
// wait for each other if there are several. A work-group processes one direction of one sequence; its items split the units.
#include "include/no_inline.cl"
#ifndef ACTIVATIONS
#define ACTIVATIONS
#define MEET
#define ITEMS 1
#endif

static float dot_lines(global const float *a, global const float *b, int n) {
    COMPILED_ONCE_AS(n, 0)
    ACCV part = (ACCV)0;
    int i = 0;
    #pragma nounroll
    for (; i + PACK <= n; i += PACK) part = fma(LOADV(a, i), LOADV(b, i), part);
    ACC lanes[PACK], sum = 0;
    VSTORE(PACK, part, 0, lanes);
    #pragma nounroll
    for (int k = 0; k < PACK; ++k) sum += lanes[k];
    #pragma nounroll
    for (; i < n; ++i) sum = fma(a[i], b[i], sum);
    return sum;
}

static float activate(float x, global const float *function, float clip) {
    const int number = (int)function[0];
    COMPILED_ONCE_AS(number, x)
    const float alpha = function[1], beta = function[2];
    if (clip > 0) x = fmin(fmax(x, -clip), clip);
    switch (number) {
        ACTIVATIONS
    }
    return x;
}

#define INPUT_PARAMETERS \
    global const float *x, global const float *w, global const float *b, global float *z, int lines, int inputs, int hidden, \
    int rows, int directions, int has_bias, int reset_late

// z[line, direction, gate row] = w . x, and the biases that no gate acts on.
static void input_sum(int row, int line, INPUT_PARAMETERS) {
    COMPILED_ONCE(lines)
    if (row >= directions * rows || line >= lines) return;
    float sum = dot_lines(x + (size_t)line * inputs, w + (size_t)row * inputs, inputs);
    const int d = row / rows, g = row - d * rows;
    global const float *own = b + (size_t)d * 2 * rows;
    if (has_bias) sum += own[g];
    if (has_bias && !(reset_late && g >= 2 * hidden)) sum += own[rows + g];
    z[(size_t)line * directions * rows + row] = sum;
}

kernel void recurrent_general_inputs(INPUT_PARAMETERS) {
    input_sum(get_global_id(0), get_global_id(1), x, w, b, z, lines, inputs, hidden, rows, directions, has_bias, reset_late);
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
#define GATE(g, j) (zt[(g) * hidden + (j)] + dot_lines(h, rd + (size_t)((g) * hidden + (j)) * hidden, hidden))

// state: h of two steps in turn; cell: c; reset: r * h, or r (gru); all [direction, batch, hidden].
static void walk_sequence(int first, int n, int d, PARAMETERS) {
    COMPILED_ONCE(hidden)
    const size_t own = ((size_t)d * batch + n) * hidden;
    global const float *rd = r + (size_t)d * rows * hidden, *pd = peep + (size_t)d * 3 * hidden;
    global float *h = state + own, *next = h + (size_t)directions * batch * hidden;
    cell += own;
    reset += own;
    const int count = has_lens ? clamp(lens[n], 0, steps) : steps;
    #pragma nounroll
    for (int j = first; j < hidden; j += ITEMS) {
        h[j] = has_h0 ? h0[own + j] : 0.0f;
        cell[j] = has_c0 ? c0[own + j] : 0.0f;
        #pragma nounroll
        for (int t = count; t < steps; ++t) y[(((size_t)t * directions + d) * batch + n) * hidden + j] = 0.0f;
    }
    MEET
    #pragma nounroll
    for (int k = 0; k < count; ++k) {
        const int t = reverse || d == 1 ? count - 1 - k : k;
        global const float *zt = z + (((size_t)t * batch + n) * directions + d) * rows;
        if (kind == 1) {
            #pragma nounroll
            for (int j = first; j < hidden; j += ITEMS) reset[j] = ACT(0, GATE(1, j)) * (reset_late ? 1.0f : h[j]);
            MEET
        }
        #pragma nounroll
        for (int j = first; j < hidden; j += ITEMS) {
            float made = 0.0f;
            if (kind == 0) {
                const float c = cell[j];
                const float in = ACT(0, GATE(0, j) + (has_peep ? pd[j] * c : 0.0f));
                const float kept = coupled ? 1 - in : ACT(0, GATE(2, j) + (has_peep ? pd[2 * hidden + j] * c : 0.0f));
                const float c_new = kept * c + in * ACT(1, GATE(3, j));
                cell[j] = c_new;
                made = ACT(0, GATE(1, j) + (has_peep ? pd[hidden + j] * c_new : 0.0f)) * ACT(2, c_new);
            } else if (kind == 1) {
                const int row = 2 * hidden + j;
                float inner = dot_lines(reset_late ? h : reset, rd + (size_t)row * hidden, hidden);
                if (reset_late) inner = (inner + (has_bias ? b[(size_t)d * 2 * rows + rows + row] : 0.0f)) * reset[j];
                const float u = ACT(0, GATE(0, j));
                made = (1 - u) * ACT(1, zt[row] + inner) + u * h[j];
            } else {
                made = ACT(0, GATE(0, j));
            }
            next[j] = made;
            y[(((size_t)t * directions + d) * batch + n) * hidden + j] = made;
        }
        MEET
        global float *swap = h;
        h = next;
        next = swap;
    }
    #pragma nounroll
    for (int j = first; j < hidden; j += ITEMS) {
        // A sequence without a step has states of zero, whatever its initial state.
        yh[own + j] = count ? h[j] : 0.0f;
        if (kind == 0) yc[own + j] = count ? cell[j] : 0.0f;
    }
}

kernel void recurrent_general(PARAMETERS) {
    walk_sequence(get_global_id(0), get_global_id(1), get_global_id(2), ARGUMENTS);
}
