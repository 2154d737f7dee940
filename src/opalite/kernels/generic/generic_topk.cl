// Positions of the `k` first elements of each line, best first, and their values where `has_values`: TopK, and ArgReduce with
// k = 1.  Line l has `length` elements, `inner` apart.
//   type       of elements: 0 float, 1 int, 2 long, 3 uchar, 4 char
//   smallest   the smallest comes first     last  of equal elements the later comes first
//   nan_first  NaN comes before all numbers; else it is larger than they are
#include "include/no_inline.cl"

// A number that is larger for what comes first.
static inline long rank_of(global const uchar *x, long i, int type, int smallest, int nan_first) {
    long rank;
    if (type == 0) {
        const float v = ((global const float *)x)[i];
        const int bits = as_int(v == 0.0f ? 0.0f : v);  // of both zeros
        rank = v != v ? INT_MAX : bits < 0 ? bits ^ INT_MAX : bits;
        if (v != v && nan_first) return LONG_MAX;
    } else {
        rank = type == 1 ? (long)((global const int *)x)[i] : type == 2 ? ((global const long *)x)[i]
             : type == 3 ? (long)x[i] : (long)((global const char *)x)[i];
    }
    return smallest ? ~rank : rank;
}

#define PARAMETERS \
    global const uchar *x, global uchar *values, global long *indices, int lines, int length, int inner, int k, int type, \
    int smallest, int last, int nan_first, int has_values
#define ARGUMENTS x, values, indices, lines, length, inner, k, type, smallest, last, nan_first, has_values
#define RANK(i) rank_of(x, at + (i) * inner, type, smallest, nan_first)

static void order_line(int line, PARAMETERS) {
    COMPILED_ONCE(lines)
    if (line >= lines) return;
    const int outer = line / inner;
    const long at = (long)outer * length * inner + line % inner, out = (long)outer * k * inner + line % inner;
    indices += out;
    int kept = 0;
    long worst = 0;
    #pragma nounroll
    for (int i = 0; i < length; ++i) {
        const long rank = RANK((long)i);
        if (kept == k && (last ? rank < worst : rank <= worst)) continue;
        int to = kept < k ? kept++ : k - 1;
        #pragma nounroll
        for (; to > 0; --to) {
            const long before = indices[(long)(to - 1) * inner], other = RANK(before);
            if (last ? rank < other : rank <= other) break;
            indices[(long)to * inner] = before;
        }
        indices[(long)to * inner] = i;
        worst = RANK(indices[(long)(kept - 1) * inner]);
    }
    #pragma nounroll
    for (int j = 0; j < k && has_values; ++j) {
        const long to = out + (long)j * inner, from = at + indices[(long)j * inner] * inner;
        if (type < 2) ((global uint *)values)[to] = ((global const uint *)x)[from];
        else if (type == 2) ((global ulong *)values)[to] = ((global const ulong *)x)[from];
        else values[to] = x[from];
    }
}

kernel void order(PARAMETERS) {
    order_line(get_global_id(0), ARGUMENTS);
}
