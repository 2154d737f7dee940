// y[o] = the elements of a window of x, joined: pooling, depthwise convolution, and reductions, whose windows are whole axes.
// Outputs have four axes and windows three, of which window axis a moves along output axis a + 1. An element counts where
// its coordinate o * move - pad + t * gap is in 0..size, and for the mean if it is in from..to.
//   o0..o3 extents of y, s0..s3 steps in x from x0 on      k1..k3 extents of the window, w1..w3 steps in x
//   join     0 sum, 1 maximum and 2 minimum (a NaN wins), 3 product, 4 maximum (any number is larger than NaN)
//   change   of each element first: 0 none, 1 absolute value, 2 square, 3 times the weight of its tap
//   finish   of the result: 0 none, 1 divided by what was counted, 2 square root, 3 logarithm
//   start    the result of no elements, and what elements outside count as (NaN for join 4)
//   planes   of outputs (o0) that have weights and a bias of their own      added_step  in `added`, from one output to the next
// PACK adjacent outputs are computed at once; of a window that is one contiguous axis, PACK elements.
// Grid: groups of `across` vectors of outputs along the last axis, and of `lines` rows of these.
#include "include/no_inline.cl"
#include "include/count_unpadded.cl"
#include "include/lanes_apart.cl"
#define BLOCK 64 // elements that are summed one after the other before their total joins the others', to stay accurate
#define COUNTED(z, a) (gap##a == 0 ? k##a : inside(z, gap##a, k##a, from##a, to##a))
#define AXIS(a) int o##a, long s##a, int k##a, long w##a, int move##a, int pad##a, int gap##a, int size##a, int from##a, int to##a
#define AXIS_NAMES(a) o##a, s##a, k##a, w##a, move##a, pad##a, gap##a, size##a, from##a, to##a

#define OPERATIONS_ON(T) \
    static inline T __attribute__((overloadable)) joined(T a, T b, int join) { \
        if (join == 0) return a + b; \
        if (join == 1) return (b > a) | (b != b) ? b : a; \
        if (join == 2) return (b < a) | (b != b) ? b : a; \
        if (join == 3) return a * b; \
        return (b > a) | (a != a) ? b : a; \
    } \
    static inline T __attribute__((overloadable)) changed(T v, int change, float weight) { \
        if (change == 1) return fabs(v); \
        if (change == 2) return v * v; \
        if (change == 3) return v * weight; \
        return v; \
    }
OPERATIONS_ON(float)
#if PACK > 1
OPERATIONS_ON(FLOATV)
#endif

// `count` contiguous elements, joined.
static inline float join_line(global const float *x, int count, int join, int change, float start) {
    float total = start;
    int i = 0;
#if PACK > 1
    float lanes[PACK];
    while (i + PACK <= count) {
        const int end = min(count - PACK, i + (BLOCK - 1) * PACK);
        FLOATV part = start;
        #pragma nounroll
        for (; i <= end; i += PACK) part = joined(part, changed(LOADV(x, i), change, 0.0f), join);
        STOREV(lanes, 0, part);
        #pragma clang loop vectorize(disable) unroll(disable)
        for (int k = 1; k < PACK; ++k) lanes[0] = joined(lanes[0], lanes[k], join);
        total = joined(total, lanes[0], join);
    }
#endif
    while (i < count) {
        const int end = min(count, i + BLOCK);
        float part = start;
        #pragma clang loop vectorize(disable) unroll(disable)
        for (; i < end; ++i) part = joined(part, changed(x[i], change, 0.0f), join);
        total = joined(total, part, join);
    }
    return total;
}

#define PARAMETERS \
    global const float *x, global const float *weights, global const float *bias, global const float *added, global float *y, \
    long x0, long x_count, int rows, int o0, long s0, AXIS(1), AXIS(2), AXIS(3), int join, int change, int finish, float start, \
    int planes, int has_bias, int has_added, int added_step, float low, float high, int across, int lines
#define ARGUMENTS \
    x, weights, bias, added, y, x0, x_count, rows, o0, s0, AXIS_NAMES(1), AXIS_NAMES(2), AXIS_NAMES(3), join, change, finish, \
    start, planes, has_bias, has_added, added_step, low, high, across, lines

static inline void compute_vector(int first, int row, PARAMETERS) {
    const int q1 = row / o2, c2 = row - q1 * o2, c0 = q1 / o1, c1 = q1 - c0 * o1, count = min(PACK, o3 - first);
    const int z1 = c1 * move1 - pad1, z2 = c2 * move2 - pad2;
    const long at = x0 + c0 * s0 + c1 * s1 + c2 * s2 + first * s3, out = (long)row * o3 + first;
    FLOATV total = start;
    INTV met = 0;
    float lanes[PACK];
    if (w3 == 1 && gap3 == 0 && k3 > 1) {
        #pragma nounroll
        for (int c = 0; c < count; ++c) {
            float found = start;
            #pragma nounroll
            for (int t = 0; t < k1 * k2; ++t) {
                const int t1 = t / k2, t2 = t - t1 * k2;
                found = joined(found, join_line(x + at + c * s3 + t1 * w1 + t2 * w2, k3, join, change, start), join);
            }
            lanes[c] = found;
        }
        #pragma nounroll
        for (int c = count; c < PACK; ++c) lanes[c] = start;
        total = VLOAD(PACK, 0, lanes);
    } else {
        global const float *own = change == 3 ? weights + (long)(c0 % planes) * k1 * k2 * k3 : weights;
        const INTV z3 = (LANES + first) * move3 - pad3;
        #pragma nounroll
        for (int t1 = 0; t1 < k1; ++t1) {
            const int i1 = z1 + t1 * gap1;
            if (i1 < 0 || i1 >= size1) continue;
            #pragma nounroll
            for (int t2 = 0; t2 < k2; ++t2) {
                const int i2 = z2 + t2 * gap2;
                if (i2 < 0 || i2 >= size2) continue;
                const long from = at + t1 * w1 + t2 * w2;
                global const float *taps = own + (change == 3 ? (t1 * k2 + t2) * k3 : 0);
                // Of the frequent windows, without a choice in the loop.
                const int is_direct = from >= 0 && from + (k3 - 1) * w3 + s3 * PACK <= x_count && k3 <= BLOCK;
                if (is_direct && (s3 == 1 || s3 == 2) && join == 0 && change != 1 && change != 2) {
                    global const float *next = x + from;
                    FLOATV part = start;
                    #pragma nounroll
                    for (int t3 = 0; t3 < k3; ++t3, next += w3) {
                        const FLOATV v = s3 == 1 ? LOADV(next, 0) : load_even(next);
                        const INTV seen = AS_N(PACK, uint)(z3 + t3 * gap3) < (VEC_T(uint, PACK))(uint)size3;
                        part += (seen ? v : (FLOATV)0) * (change == 3 ? taps[t3] : 1.0f);
                    }
                    total += part;
                    continue;
                }
                if (is_direct && (s3 == 1 || s3 == 2) && join == 4 && change == 0) {
                    global const float *next = x + from;
                    #pragma nounroll
                    for (int t3 = 0; t3 < k3; ++t3, next += w3) {
                        const FLOATV v = s3 == 1 ? LOADV(next, 0) : load_even(next);
                        const INTV seen = AS_N(PACK, uint)(z3 + t3 * gap3) < (VEC_T(uint, PACK))(uint)size3;
                        total = joined(total, seen ? v : (FLOATV)start, 4);
                        met |= seen;
                    }
                    continue;
                }
                #pragma nounroll
                for (int t = 0; t < k3; t += BLOCK) {
                    FLOATV part = start;
                    #pragma nounroll
                    for (int t3 = t; t3 < min(t + BLOCK, k3); ++t3) {
                        const INTV i3 = z3 + t3 * gap3;
                        const float weight = change == 3 ? taps[t3] : 0.0f;
                        const FLOATV v = changed(load_apart(x, from + t3 * w3, s3, x_count), change, weight);
                        const INTV seen = (i3 >= 0) & (i3 < size3);
                        part = joined(part, seen ? v : (FLOATV)start, join);
                        met |= seen;
                    }
                    total = joined(total, part, join);
                }
            }
        }
        if (join == 4) total = met ? total : (FLOATV)(-INFINITY);
    }
    if (finish == 1) {
        const int others = COUNTED(z1, 1) * COUNTED(z2, 2);
        #pragma nounroll
        for (int c = 0; c < PACK; ++c) lanes[c] = (float)max(others * COUNTED((first + c) * move3 - pad3, 3), 1);
        total /= VLOAD(PACK, 0, lanes);
    }
    if (finish == 2) total = sqrt(total);
    if (finish == 3) total = log(total);
    if (has_bias) total += bias[c0 % planes];
    if (has_added) total += added_step ? load_apart(added, out, 1, (long)rows * o3) : (FLOATV)added[0];
    total = total < low ? (FLOATV)low : total;
    total = total > high ? (FLOATV)high : total;
    if (count == PACK) {
        STOREV(y, out, total);
        return;
    }
    VSTORE(PACK, total, 0, lanes);
    #pragma nounroll
    for (int c = 0; c < count; ++c) y[out + c] = lanes[c];
}

static void compute_windows(int item, int block, PARAMETERS) {
    COMPILED_ONCE(rows)
    #pragma nounroll
    for (int row = block * lines; row < min((block + 1) * lines, rows); ++row) {
        #pragma nounroll
        for (int first = item * across * PACK; first < min((item + 1) * across * PACK, o3); first += PACK)
            compute_vector(first, row, ARGUMENTS);
    }
}

kernel void windows(PARAMETERS) {
    compute_windows(get_global_id(0), get_global_id(1), ARGUMENTS);
}
