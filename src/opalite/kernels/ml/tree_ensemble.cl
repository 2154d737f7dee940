// Sums (or extremes) of the leaf weights that rows of x[rows, features] reach in `trees` trees, for `columns` columns.
// limits[m], nodes[m] = (feature, flags, next if yes, next if no), leaves[m] = (first weight, one after the last).
// A leaf is its own next node.
//   RULE       the comparison of all nodes, or -1 where flags & 7 says which;  MISSING  whether flags & 8 says that NaN is yes
//   KIND       0 sum, 1 smallest, 2 largest;  ROWS  rows that step down together, so that their loads overlap
//   WHOLE      whether a work-item has all trees and so writes y; else it writes its part's sums[part, rows, columns]
// Grid: ceil(rows / (ROWS * each)), parts. A work-item takes `each` times ROWS rows tree by tree: a tree stays in the cache.
#if KIND == 0
#define START ((ACC)0)
#define JOIN(a, b) ((a) + (b))
#elif KIND == 1
#define START ((ACC)INFINITY)
#define JOIN(a, b) fmin(a, b)
#else
#define START (-(ACC)INFINITY)
#define JOIN(a, b) fmax(a, b)
#endif
#define FINISH(v) ((v) == START ? (ACC)0 : (v) * scale)

static inline int goes_yes(ACC value, ACC limit, int flags) {
#if RULE < 0
    const int rule = flags & 7;
    int yes = rule == 0   ? value <= limit
              : rule == 1 ? value < limit
              : rule == 2 ? value >= limit
              : rule == 3 ? value > limit
              : rule == 4 ? value == limit
                          : value != limit;
#elif RULE == 0
    int yes = value <= limit;
#elif RULE == 1
    int yes = value < limit;
#elif RULE == 2
    int yes = value >= limit;
#elif RULE == 3
    int yes = value > limit;
#elif RULE == 4
    int yes = value == limit;
#else
    int yes = value != limit;
#endif
#if MISSING
    yes |= (flags & 8) && isnan(value);
#endif
    return yes;
}

kernel void tree_ensemble(global const REAL *x, global const REAL *limits, global const int *nodes, global const int *roots,
                          global const int *leaves, global const int *targets, global const REAL *weights,
                          global REAL *y, global ACC *sums, int rows, int features, int trees, int columns, int parts, int each,
                          ACC scale) {
    const int first = get_global_id(0) * ROWS * each, last = min(first + ROWS * each, rows), part = get_global_id(1);
    if (first >= rows || part >= parts) return;
    global ACC *own = sums + (size_t)part * rows * columns;
    for (size_t i = (size_t)first * columns; i < (size_t)last * columns; ++i) own[i] = START;
    const int end = (int)((long)trees * (part + 1) / parts);
    for (int t = (int)((long)trees * part / parts); t < end; ++t) {
        const int root = roots[t];
        for (int r = first; r < last; r += ROWS) {
            int at[ROWS], moves;
            global const REAL *line[ROWS];
#pragma unroll
            for (int l = 0; l < ROWS; ++l) {
                at[l] = root;
                line[l] = x + (size_t)min(r + l, rows - 1) * features;
            }
            do {
                moves = 0;
#pragma unroll
                for (int l = 0; l < ROWS; ++l) {
                    const int4 node = vload4(at[l], nodes);
                    const ACC limit = LOAD(limits, at[l]);
                    const int next = goes_yes(LOAD(line[l], node.x), limit, node.y) ? node.z : node.w;
                    moves |= next ^ at[l];
                    at[l] = next;
                }
            } while (moves);
            for (int l = 0; l < ROWS && r + l < last; ++l) {
                const int2 leaf = vload2(at[l], leaves);
                global ACC *to = own + (size_t)(r + l) * columns;
                for (int k = leaf.x; k < leaf.y; ++k) {
                    const int c = targets[k];
                    to[c] = JOIN(to[c], LOAD(weights, k));
                }
            }
        }
    }
#if WHOLE
    for (size_t i = (size_t)first * columns; i < (size_t)last * columns; ++i) STORE(y, i, FINISH(own[i]));
#endif
}

// y = the sums of the parts.
kernel void tree_parts(global const ACC *sums, global REAL *y, int count, int parts, ACC scale) {
    const int i = get_global_id(0);
    if (i >= count) return;
    ACC v = sums[i];
    for (int p = 1; p < parts; ++p) v = JOIN(v, sums[(size_t)p * count + i]);
    STORE(y, i, FINISH(v));
}
