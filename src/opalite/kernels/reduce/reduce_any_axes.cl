// y[k] = reduction of x over axes anywhere: serves every pattern (reduce/reduction_kinds.cl). One work-item makes one result.
// Grid: results.
//   kept      (size, stride) of the axes that stay, outermost first; `kept_axes` of them
//   reduced   the same of the reduced axes but the innermost, `reduced_axes` of them, `runs` positions in all; the
//             innermost has `run` elements, `step` apart
#include "reduce/reduction_kinds.cl"

// Offset of position `index` of the axes.
static inline size_t position(global const int *axes, int count, int index) {
    size_t at = 0;
    for (int a = count - 1; a >= 0; --a) {
        at += (size_t)(index % axes[2 * a]) * axes[2 * a + 1];
        index /= axes[2 * a];
    }
    return at;
}

kernel void reduce_strided(global const SOURCE *x, global REAL *y, global const int *kept, int kept_axes,
                           global const int *reduced, int reduced_axes, int results, int runs, int run, int step,
                           int count) {
    const int id = get_global_id(0);
    if (id >= results) return;
    x += position(kept, kept_axes, id);
    ACC v = START;
    for (int r = 0; r < runs; ++r) {
        const size_t base = position(reduced, reduced_axes, r);
        for (int i = 0; i < run;) {
            ACC a = START;
            for (const int stop = min(run, i + BLOCK); i < stop; ++i) {
                const ACC e = TAKE(1, x, base + (size_t)i * step);
                a = JOIN(a, e);
            }
            v = JOIN(v, a);
        }
    }
#if KIND == 9
    const ACC shift = isfinite(v) ? v : (ACC)0;
    ACC sum = 0;
    for (int r = 0; r < runs; ++r) {
        const size_t base = position(reduced, reduced_axes, r);
        for (int i = 0; i < run; ++i) sum += exp(ELEMENTS(1, x, base + (size_t)i * step) - shift);
    }
    v = log(sum) + shift;
#endif
    v = FINISH(v, count);
    STORE(y, id, v);
}
