// y[b, g, m, p] = bias[g, m] + added[b, g, m, p] + sum over c and t of w[b, g, m, c, t] * x[b, g, c, p moved by tap t],
// clamped to low..high: a convolution of up to three spatial axes in groups, a transposed one, or a stack of matrix products (one
// tap; p is the column). All sizes are arguments.  Needs PACK (4, 8 or 16: positions in a vector) and VECTORS (of them, that a
// work-item computes, for ROWS values of m).
//   kd kh kw    taps        sd sh sw   steps of a position     dd dh dw   of a tap     pd ph pw   padding before x
//   id ih iw    extents that positions are inside of           qd qh qw   positions    od oh ow   extents of y
//   split_h, split_w   x has every split_h-th row and split_w-th column in a plane of its own (see split_phases): `phases_w` planes
//                      for each remainder of rows, phase_step apart
//   ud uh uw    steps of a transposed convolution, else 0: outputs whose coordinates leave equal remainders are one stack
// x_step_* count elements of x from one b, g and c to the next, w_step_* elements of w, from one b, g, m and c, added_step_*
// elements of `added` from one y[b, g], m and p.
// Blocks of positions lie within lines: `line` is all positions where lanes may go on from one row of y to the next, which
// `wrap` positions make; else it is qw, and wrap more than lanes reach.
// Grid: blocks of positions and of rows (these first with rows_first), then b, g and the remainders.
#include "include/no_inline.cl"
#include "include/sum_block.cl"
#include "include/lanes_apart.cl"
#ifndef VECTORS
#define VECTORS 2
#endif
#define ROWS 4
#define UINTV VEC_T(uint, PACK)

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
    long x_count, long x_step_b, long x_step_g, long x_step_c, long w_step_b, long w_step_g, long w_step_m, long w_step_c, \
    int kd, int kh, int kw, int sd, int sh, int sw, int dd, int dh, int dw, int pd, int ph, int pw, \
    int id, int ih, int iw, int qd, int qh, int qw, int od, int oh, int ow, \
    int split_h, int split_w, int phases_w, long phase_step, int ud, int uh, int uw
#define ARGUMENTS \
    x, w, bias, added, y, has_bias, has_added, added_step_s, added_step_m, added_step_p, low, high, rows_first, \
    positions, line, wrap, rows, depth, groups, stacks, x_count, x_step_b, x_step_g, x_step_c, w_step_b, w_step_g, w_step_m, \
    w_step_c, kd, kh, kw, sd, sh, sw, dd, dh, dw, pd, ph, pw, id, ih, iw, qd, qh, qw, od, oh, ow, \
    split_h, split_w, phases_w, phase_step, ud, uh, uw

static void compute_product(int g0, int g1, int part, PARAMETERS) {
    COMPILED_ONCE(positions)
    const int block = rows_first ? g1 : g0, m0 = (rows_first ? g0 : g1) * ROWS;
    const int blocks = (line + PACK * VECTORS - 1) / (PACK * VECTORS), here = block / blocks;
    const int first = here * line + (block - here * blocks) * (PACK * VECTORS), last = min((here + 1) * line, positions);
    const int transposed = uw > 0, remainders = transposed ? ud * uh * uw : 1, stack = part / remainders;
    if (first >= positions || m0 >= rows || stack >= stacks) return;
    const int b = stack / groups, g = stack - b * groups;
    const long x0 = b * x_step_b + g * x_step_g, w0 = b * w_step_b + g * w_step_g;
    int uz = 0, uy = 0, ux = 0;
    if (transposed) {
        const int remainder = part - stack * remainders;
        uz = remainder / (uh * uw);
        uy = remainder / uw % uh;
        ux = remainder % uw;
    }

    // Where each lane's window begins, along the three axes and in memory.
    const int oz0 = first / (qh * qw), oy0 = first / qw - oz0 * qh, ox0 = first % qw;
    const int bz = transposed ? 0 : pd, by = transposed ? 0 : ph, bx = transposed ? 0 : pw;
    INTV z[VECTORS], r[VECTORS], s[VECTORS], place[VECTORS], uneven = 0;
    #pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        const INTV across = LANES + (ox0 + v * PACK), down = quotient(across, wrap) + oy0, deep = quotient(down, qh);
        s[v] = (across - (down - oy0) * qw) * sw - bx;
        r[v] = (down - deep * qh) * sh - by;
        z[v] = (deep + oz0) * sd - bz;
        place[v] = (z[v] * ih + r[v]) * iw + s[v];
    }
    const int base = ((oz0 * sd - bz) * ih + oy0 * sh - by) * iw + ox0 * sw - bx;
    #pragma unroll
    for (int v = 0; v < VECTORS; ++v) uneven |= place[v] != LANES + (base + v * PACK);
    const int even = !any(uneven);
    const long begin = x0 + base;

    FLOATV acc[ROWS][VECTORS], total[ROWS][VECTORS];
    int summed = 0;  // terms in acc
    long row[ROWS];
    #pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        const int m = min(m0 + i, rows - 1);
        row[i] = w0 + m * w_step_m;
        #pragma unroll
        for (int v = 0; v < VECTORS; ++v) {
            total[i][v] = has_bias ? bias[g * rows + m] : 0.0f;
            acc[i][v] = 0;
        }
    }
    for (int tap = 0; tap < kd * kh * kw; ++tap) {
        const int tz = tap / (kh * kw), ty = tap / kw - tz * kh, tx = tap % kw;
        int mz = tz * dd, my = ty * dh, mx = tx * dw;
        long phase = 0;
        if (transposed) {
            mz = uz + pd - mz;
            my = uy + ph - my;
            mx = ux + pw - mx;
            if (mz % ud || my % uh || mx % uw) continue;
            mz /= ud;
            my /= uh;
            mx /= uw;
        } else if (split_w > 1) {
            phase = (my % split_h * phases_w + mx % split_w) * phase_step;
            my /= split_h;
            mx /= split_w;
        }
        const long moved = phase + (mz * ih + my) * iw + mx;
        INTV seen[VECTORS];
        #pragma unroll
        for (int v = 0; v < VECTORS; ++v) {
            seen[v] = (AS_N(PACK, uint)(z[v] + mz) < (UINTV)(uint)id) & (AS_N(PACK, uint)(r[v] + my) < (UINTV)(uint)ih)
                      & (AS_N(PACK, uint)(s[v] + mx) < (UINTV)(uint)iw);
        }
        for (int c = 0; c < depth; ++c) {
            const long from = begin + c * x_step_c + moved;
            FLOATV value[VECTORS];
            if (even && from >= 0 && from + PACK * VECTORS <= x_count) {
                #pragma unroll
                for (int v = 0; v < VECTORS; ++v)
                    value[v] = AS_N(PACK, float)(AS_N(PACK, int)(LOADV(x, from + v * PACK)) & seen[v]);
            } else {
                float lanes[PACK * VECTORS];
                const int *places = (const int *)place, *inside = (const int *)seen;
                #pragma clang loop vectorize(disable) unroll(disable)
                for (int k = 0; k < PACK * VECTORS; ++k)
                    lanes[k] = inside[k] && first + k < last ? x[x0 + c * x_step_c + moved + places[k]] : 0.0f;
                #pragma unroll
                for (int v = 0; v < VECTORS; ++v) value[v] = LOADV(lanes, v * PACK);
            }
            #pragma unroll
            for (int i = 0; i < ROWS; ++i) {
                const float weight = w[row[i] + c * w_step_c + tap];
                #pragma unroll
                for (int v = 0; v < VECTORS; ++v) acc[i][v] += weight * value[v];
            }
            if (++summed < SUM_BLOCK) continue;
            summed = 0;
            #pragma unroll
            for (int i = 0; i < ROWS; ++i) {
                #pragma unroll
                for (int v = 0; v < VECTORS; ++v) {
                    total[i][v] += acc[i][v];
                    acc[i][v] = 0;
                }
            }
        }
    }
    #pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        #pragma unroll
        for (int v = 0; v < VECTORS; ++v) total[i][v] += acc[i][v];
    }
    #pragma clang loop unroll(disable)
    for (int i = 0; i < ROWS && m0 + i < rows; ++i) {
        const long to = ((long)stack * rows + m0 + i) * ((long)od * oh * ow);
        const long added_at = stack * added_step_s + (m0 + i) * added_step_m;
        #pragma clang loop unroll(disable)
        for (int v = 0; v < VECTORS; ++v) {
            const int at = first + v * PACK, left = min(last - at, PACK);
            FLOATV found = total[i][v];
            if (!transposed && left == PACK) {
                if (has_added) found += added_step_p == 1 ? LOADV(added, added_at + at) : (FLOATV)added[added_at];
                found = found < low ? (FLOATV)low : found;
                found = found > high ? (FLOATV)high : found;
                STOREV(y, to + at, found);
                continue;
            }
            float lanes[PACK];
            STOREV(lanes, 0, found);
            const int *deep = (const int *)&z[v], *down = (const int *)&r[v], *across = (const int *)&s[v];
            #pragma clang loop vectorize(disable) unroll(disable)
            for (int k = 0; k < left; ++k) {
                long o = at + k;
                if (transposed) {
                    const int oz = deep[k] * ud + uz, oy = down[k] * uh + uy, ox = across[k] * uw + ux;
                    if (oz >= od || oy >= oh || ox >= ow) continue;
                    o = ((long)oz * oh + oy) * ow + ox;
                }
                float one = lanes[k];
                if (has_added) one += added[added_at + o * added_step_p];
                one = one < low ? low : one;
                y[to + o] = one > high ? high : one;
            }
        }
    }
}

kernel void product(PARAMETERS) {
    compute_product(get_global_id(0), get_global_id(1), get_global_id(2), ARGUMENTS);
}

#define SPLIT_PARAMETERS \
    global const float *x, global float *y, long x_count, int lines, int depth, int ih, int iw, int height, int width, int sh, \
    int sw, int ph, int pw, int phases_h, int phases_w, int span
#define SPLIT_ARGUMENTS x, y, x_count, lines, depth, ih, iw, height, width, sh, sw, ph, pw, phases_h, phases_w, span

// y[plane, phase of rows, phase of columns, d, h, w] = x[plane, d, h * sh + phase - ph, w * sw + phase - pw], 0 outside of x.
static void split_lines(int group, SPLIT_PARAMETERS) {
    COMPILED_ONCE(lines)
    #pragma nounroll
    for (int line = group * span; line < min((group + 1) * span, lines); ++line) {
        const int qd = line / height, h = line - qd * height, qx = qd / depth, d = qd - qx * depth;
        const int qy = qx / phases_w, px = qx - qy * phases_w, plane = qy / phases_h, py = qy - plane * phases_h;
        const int from_h = h * sh + py - ph, has_row = from_h >= 0 && from_h < ih;
        const long row = (((long)plane * depth + d) * ih + from_h) * iw;
        #pragma nounroll
        for (int first = 0; first < width; first += PACK) {
            const int begin = first * sw + px - pw;
            FLOATV v = 0;
            if (has_row) {
                const UINTV at = AS_N(PACK, uint)(LANES * sw + begin);
                v = load_apart(x, row + begin, sw, x_count);
                v = at < (UINTV)(uint)iw ? v : (FLOATV)0;
            }
            global float *to = y + (long)line * width + first;
            if (first + PACK <= width) {
                STOREV(to, 0, v);
                continue;
            }
            float lanes[PACK];
            STOREV(lanes, 0, v);
            #pragma nounroll
            for (int k = 0; k < width - first; ++k) to[k] = lanes[k];
        }
    }
}

kernel void split_phases(SPLIT_PARAMETERS) {
    split_lines(get_global_id(0), SPLIT_ARGUMENTS);
}
