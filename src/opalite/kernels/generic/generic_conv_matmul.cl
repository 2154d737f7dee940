// y[b, g, m, p] = bias[g, m] + added[b, g, m, p] + sum over c and t of w[b, g, m, c, t] * x[b, g, c, p moved by tap t],
// clamped to low..high: a convolution of up to three spatial axes in groups, or a stack of matrix products (one tap; p is the column).
// All sizes are arguments.  Needs PACK (4, 8 or 16: positions in a vector) and VECTORS (of them, that a work-item computes,
// for ROWS values of m).
//   kd kh kw    taps        sd sh sw   steps of a position     dd dh dw   of a tap     pd ph pw   padding before x
//   id ih iw    extents that positions are inside of           oh ow      of y
// x_step_* count elements of x from one b, g and c to the next, w_step_* elements of w, from w_begin on, from one b, g, m, c
// and tap, added_step_* elements of `added` from one y[b, g], m and p.
// Blocks of positions lie within lines: `line` is all positions where lanes may go on from one row of y to the next, which
// `wrap` positions make; else it is ow, and wrap more than lanes reach.
// Grid: blocks of positions and of rows (these first with rows_first), then b and g.
#include "include/no_inline.cl"
#include "include/sum_block.cl"
#ifndef VECTORS
#define VECTORS 2
#endif
#define ROWS 4
#define INTV VEC_T(int, PACK)
#define UINTV VEC_T(uint, PACK)
#define FLOATV VEC_T(float, PACK)

// a / b of small numbers: floats hold them, and the quotient is off by less than one.
static inline INTV quotient(INTV a, int b) {
    INTV q = CONVERT_N(PACK, int)(CONVERT_N(PACK, float)(a) / (FLOATV)(float)b);
    q += q * b > a;
    q -= a - q * b >= b;
    return q;
}

#define PARAMETERS \
    global const float *x, global const float *w, global const float *bias, global const float *added, global float *y, \
    int has_bias, int has_added, long added_step_s, long added_step_m, long added_step_p, float low, float high, \
    int rows_first, int positions, int line, int wrap, int rows, int depth, int groups, int stacks, \
    long x_count, long x_step_b, long x_step_g, long x_step_c, \
    long w_begin, long w_step_b, long w_step_g, long w_step_m, long w_step_c, int w_step_t, \
    int kd, int kh, int kw, int sd, int sh, int sw, int dd, int dh, int dw, int pd, int ph, int pw, \
    int id, int ih, int iw, int oh, int ow
#define ARGUMENTS \
    x, w, bias, added, y, has_bias, has_added, added_step_s, added_step_m, added_step_p, low, high, rows_first, \
    positions, line, wrap, rows, depth, groups, stacks, x_count, x_step_b, x_step_g, x_step_c, w_begin, w_step_b, \
    w_step_g, w_step_m, w_step_c, w_step_t, kd, kh, kw, sd, sh, sw, dd, dh, dw, pd, ph, pw, id, ih, iw, oh, ow

static void compute_product(int g0, int g1, int stack, PARAMETERS) {
    COMPILED_ONCE(positions)
    const int block = rows_first ? g1 : g0, m0 = (rows_first ? g0 : g1) * ROWS;
    const int blocks = (line + PACK * VECTORS - 1) / (PACK * VECTORS), here = block / blocks;
    const int first = here * line + (block - here * blocks) * (PACK * VECTORS), last = min((here + 1) * line, positions);
    if (first >= positions || m0 >= rows || stack >= stacks) return;
    const int b = stack / groups, g = stack - b * groups;
    const long x0 = b * x_step_b + g * x_step_g, w0 = w_begin + b * w_step_b + g * w_step_g;

    // Where each lane's window begins, along the three axes and in memory.
    const int oz0 = first / (oh * ow), oy0 = first / ow - oz0 * oh, ox0 = first % ow;
    INTV z[VECTORS], r[VECTORS], s[VECTORS], uneven = 0;
    int places[PACK * VECTORS], inside[PACK * VECTORS];
    #pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        const INTV across = LANES + (ox0 + v * PACK), down = quotient(across, wrap) + oy0, deep = quotient(down, oh);
        s[v] = (across - (down - oy0) * ow) * sw - pw;
        r[v] = (down - deep * oh) * sh - ph;
        z[v] = (deep + oz0) * sd - pd;
        VSTORE(PACK, (z[v] * ih + r[v]) * iw + s[v], v * PACK, places);
    }
    #pragma unroll
    for (int v = 0; v < VECTORS; ++v) uneven |= VLOAD(PACK, v * PACK, places) != LANES + (places[0] + v * PACK);
    const int even = !any(uneven);
    const long begin = x0 + places[0];

    float lanes[ROWS * PACK * VECTORS];
    #pragma clang loop vectorize(disable) unroll(disable)
    for (int k = 0; k < ROWS * PACK * VECTORS; ++k) {
        const int m = min(m0 + k / (PACK * VECTORS), rows - 1), p = min(first + k % (PACK * VECTORS), last - 1);
        lanes[k] = has_bias ? bias[g * rows + m] : 0.0f;
        if (has_added) lanes[k] += added[stack * added_step_s + m * added_step_m + p * added_step_p];
    }
    FLOATV acc[ROWS][VECTORS], total[ROWS * VECTORS];
    int summed = 0;  // terms in acc
    long row[ROWS];
    #pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        row[i] = w0 + min(m0 + i, rows - 1) * w_step_m;
        #pragma unroll
        for (int v = 0; v < VECTORS; ++v) {
            total[i * VECTORS + v] = VLOAD(PACK, (i * VECTORS + v) * PACK, lanes);
            acc[i][v] = 0;
        }
    }
    for (int tap = 0; tap < kd * kh * kw; ++tap) {
        const int tz = tap / (kh * kw), ty = tap / kw - tz * kh, tx = tap % kw;
        const int moved = (tz * dd * ih + ty * dh) * iw + tx * dw;
        INTV seen[VECTORS];
        #pragma unroll
        for (int v = 0; v < VECTORS; ++v) {
            seen[v] = (AS_N(PACK, uint)(z[v] + tz * dd) < (UINTV)(uint)id)
                      & (AS_N(PACK, uint)(r[v] + ty * dh) < (UINTV)(uint)ih)
                      & (AS_N(PACK, uint)(s[v] + tx * dw) < (UINTV)(uint)iw);
            VSTORE(PACK, seen[v], v * PACK, inside);
        }
        for (int c = 0; c < depth; ++c) {
            const long from = begin + c * x_step_c + moved;
            FLOATV value[VECTORS];
            if (even && from >= 0 && from + PACK * VECTORS <= x_count) {
                #pragma unroll
                for (int v = 0; v < VECTORS; ++v)
                    value[v] = AS_N(PACK, float)(AS_N(PACK, int)(LOADV(x, from + v * PACK)) & seen[v]);
            } else {
                #pragma clang loop vectorize(disable) unroll(disable)
                for (int k = 0; k < PACK * VECTORS; ++k)
                    lanes[k] = inside[k] && first + k < last ? x[x0 + c * x_step_c + moved + places[k]] : 0.0f;
                #pragma unroll
                for (int v = 0; v < VECTORS; ++v) value[v] = VLOAD(PACK, v * PACK, lanes);
            }
            #pragma unroll
            for (int i = 0; i < ROWS; ++i) {
                const float weight = w[row[i] + c * w_step_c + tap * w_step_t];
                #pragma unroll
                for (int v = 0; v < VECTORS; ++v) acc[i][v] += weight * value[v];
            }
            if (++summed < SUM_BLOCK) continue;
            summed = 0;
            #pragma unroll
            for (int i = 0; i < ROWS * VECTORS; ++i) {
                total[i] += acc[i / VECTORS][i % VECTORS];
                acc[i / VECTORS][i % VECTORS] = 0;
            }
        }
    }
    #pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        #pragma unroll
        for (int v = 0; v < VECTORS; ++v) VSTORE(PACK, total[i * VECTORS + v] + acc[i][v], (i * VECTORS + v) * PACK, lanes);
    }
    #pragma clang loop unroll(disable)
    for (int i = 0; i < ROWS && m0 + i < rows; ++i) {
        global float *to = y + ((long)stack * rows + m0 + i) * positions + first;
        #pragma clang loop unroll(disable)
        for (int v = 0; v < VECTORS; ++v) {
            const int begin = v * PACK, left = last - first - begin;
            FLOATV found = VLOAD(PACK, i * VECTORS * PACK + begin, lanes);
            found = found < low ? (FLOATV)low : found;
            found = found > high ? (FLOATV)high : found;
            if (left >= PACK) {
                STOREV(to, begin, found);
            } else {
                float rest[PACK];
                VSTORE(PACK, found, 0, rest);
                #pragma clang loop vectorize(disable) unroll(disable)
                for (int k = 0; k < left; ++k) to[begin + k] = rest[k];
            }
        }
    }
}

kernel void product(PARAMETERS) {
    compute_product(get_global_id(0), get_global_id(1), get_global_id(2), ARGUMENTS);
}
