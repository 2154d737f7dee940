// LSTM, GRU and RNN in two launches: the inputs' share of every gate for all steps, then the walk over time.
//   KIND 0 lstm (gates i, o, f, c), 1 gru (z, r, h), 2 rnn;  GATES 4, 3, 1
//   DIRECTIONS 1 or 2;  BACKWARD: the only direction runs backward;  HAS_BIAS, HAS_LENS, HAS_H0, HAS_C0, HAS_PEEP
//   RESET_LATE: gru's linear_before_reset;  COUPLED: lstm's input_forget
//   ROUNDS: the gates of an lstm see h rounded to 8 bits, of one sequence
//   ACT(i, v, d): generated, activation i of direction d
#ifndef KIND
#include "recurrent/rnn_defaults.cl"
#define GATES 1
#define DIRECTIONS 1
#endif
#if ROUNDS
#include "recurrent/rnn_rounding.cl"
#endif

static inline ACC lanes_sum(ACCV v) {
    ACC lanes[PACK];
    *(ACCV *)lanes = v;
    ACC sum = lanes[0];
    for (int k = 1; k < PACK; ++k) sum += lanes[k];
    return sum;
}

// Sum of a[i] * b[i] over n elements in storage type.
static inline ACC dot_stored(global const REAL *a, global const REAL *b, int n) {
    ACCV part = (ACCV)0;
    int i = 0;
    for (; i + PACK <= n; i += PACK) part = fma(LOADV(a, i), LOADV(b, i), part);
    ACC sum = lanes_sum(part);
    for (; i < n; ++i) sum = fma(LOAD(a, i), LOAD(b, i), sum);
    return sum;
}

// The same with `h` in arithmetic type.
static inline ACC dot_state(global const ACC *h, global const REAL *r, int n) {
    ACCV part = (ACCV)0;
    int i = 0;
    for (; i + PACK <= n; i += PACK) part = fma(VLOAD(PACK, i, h), LOADV(r, i), part);
    ACC sum = lanes_sum(part);
    for (; i < n; ++i) sum = fma(h[i], LOAD(r, i), sum);
    return sum;
}

// z[step * batch + n, direction, gate row] = w . x + biases that do not depend on the state's gating
kernel void recurrent_inputs(global const REAL *x, global const REAL *w, global const REAL *b, global ACC *z,
                             int lines, int inputs, int hidden) {
    const int row = get_global_id(0);
    const int line = get_global_id(1);
    const int rows = GATES * hidden;
    if (row >= DIRECTIONS * rows || line >= lines) return;
    ACC sum = dot_stored(x + (size_t)line * inputs, w + (size_t)row * inputs, inputs);
#if HAS_BIAS
    const int d = row / rows, g = row - d * rows;
    global const REAL *own = b + (size_t)d * 2 * rows;
    sum += LOAD(own, g);
    if (!(RESET_LATE && g >= 2 * hidden)) sum += LOAD(own, rows + g);
#endif
    z[(size_t)line * DIRECTIONS * rows + row] = sum;
}

// One work-group walks one direction of one batch entry; its work-items share the hidden units.
// state: h of two steps in turn, cell: c, reset: r * h (gru); all [direction, batch, hidden] in arithmetic type.
kernel void recurrent_steps(global const ACC *z, global const REAL *r, global const REAL *b, global const int *lens,
                            global const REAL *h0, global const REAL *c0, global const REAL *peep, global ACC *state,
                            global ACC *cell, global ACC *reset, global REAL *y, global REAL *yh, global REAL *yc,
                            int steps, int batch, int hidden) {
    const int n = get_group_id(1);
    const int d = get_group_id(2);
    const int first = get_local_id(0);
    const int stride = get_local_size(0);
    const int rows = GATES * hidden;
    const size_t own = ((size_t)d * batch + n) * hidden;
    const size_t half_size = (size_t)DIRECTIONS * batch * hidden;
    global const REAL *rd = r + (size_t)d * rows * hidden;
#if HAS_LENS
    const int count = clamp(lens[n], 0, steps);
#else
    const int count = steps;
#endif
    const int backward = BACKWARD || d == 1;
    global ACC *h = state + own;
    global ACC *next = state + half_size + own;
    for (int j = first; j < hidden; j += stride) {
#if HAS_H0
        h[j] = LOAD(h0, own + j);
#else
        h[j] = 0;
#endif
#if KIND == 0
#if HAS_C0
        cell[own + j] = LOAD(c0, own + j);
#else
        cell[own + j] = 0;
#endif
#endif
        for (int t = count; t < steps; ++t) STORE(y, (((size_t)t * DIRECTIONS + d) * batch + n) * hidden + j, (ACC)0);
    }
    barrier(CLK_GLOBAL_MEM_FENCE);
    for (int k = 0; k < count; ++k) {
        const int t = backward ? count - 1 - k : k;
        global const ACC *zt = z + (((size_t)t * batch + n) * DIRECTIONS + d) * rows;
#if KIND == 1
        for (int j = first; j < hidden; j += stride) {
            const ACC rv = zt[hidden + j] + dot_state(h, rd + (size_t)(hidden + j) * hidden, hidden);
            const ACC gate = ACT(0, rv, d);
            reset[own + j] = RESET_LATE ? gate : gate * h[j];
        }
        barrier(CLK_GLOBAL_MEM_FENCE);
#endif
#if ROUNDS
        ACC low = 0, high = 0;
        for (int j = 0; j < hidden; ++j) {
            low = min(low, h[j]);
            high = max(high, h[j]);
        }
        for (int j = first; j < hidden; j += stride) reset[own + j] = round_state(h[j], low, high);
        barrier(CLK_GLOBAL_MEM_FENCE);
        global const ACC *seen = reset + own;
#else
        global const ACC *seen = h;
#endif
        for (int j = first; j < hidden; j += stride) {
#if KIND == 0
            const ACC c = cell[own + j];
            ACC iv = zt[j] + dot_state(seen, rd + (size_t)j * hidden, hidden);
            ACC ov = zt[hidden + j] + dot_state(seen, rd + (size_t)(hidden + j) * hidden, hidden);
            const ACC cv = zt[3 * hidden + j] + dot_state(seen, rd + (size_t)(3 * hidden + j) * hidden, hidden);
#if HAS_PEEP
            global const REAL *pd = peep + (size_t)d * 3 * hidden;
            iv += LOAD(pd, j) * c;
#endif
            const ACC i = ACT(0, iv, d);
#if COUPLED
            const ACC f = 1 - i;
#else
            ACC fv = zt[2 * hidden + j] + dot_state(seen, rd + (size_t)(2 * hidden + j) * hidden, hidden);
#if HAS_PEEP
            fv += LOAD(pd, 2 * hidden + j) * c;
#endif
            const ACC f = ACT(0, fv, d);
#endif
            const ACC c_new = f * c + i * ACT(1, cv, d);
#if HAS_PEEP
            ov += LOAD(pd, hidden + j) * c_new;
#endif
            const ACC h_new = ACT(0, ov, d) * ACT(2, c_new, d);
            cell[own + j] = c_new;
#elif KIND == 1
            const ACC u = ACT(0, zt[j] + dot_state(h, rd + (size_t)j * hidden, hidden), d);
#if RESET_LATE
            ACC inner = dot_state(h, rd + (size_t)(2 * hidden + j) * hidden, hidden);
#if HAS_BIAS
            inner += LOAD(b, (size_t)d * 2 * rows + rows + 2 * hidden + j);
#endif
            inner *= reset[own + j];
#else
            const ACC inner = dot_state(reset + own, rd + (size_t)(2 * hidden + j) * hidden, hidden);
#endif
            const ACC h_new = (1 - u) * ACT(1, zt[2 * hidden + j] + inner, d) + u * h[j];
#else
            const ACC h_new = ACT(0, zt[j] + dot_state(h, rd + (size_t)j * hidden, hidden), d);
#endif
            next[j] = h_new;
            STORE(y, (((size_t)t * DIRECTIONS + d) * batch + n) * hidden + j, h_new);
        }
        barrier(CLK_GLOBAL_MEM_FENCE);
        global ACC *swap = h;
        h = next;
        next = swap;
    }
    for (int j = first; j < hidden; j += stride) {
        // A sequence without a step has states of zero, whatever its initial state.
        STORE(yh, own + j, count ? h[j] : (ACC)0);
#if KIND == 0
        STORE(yc, own + j, count ? cell[own + j] : (ACC)0);
#endif
    }
}
