// Writes updates at positions given by indices; needs data_movement/gather_scatter_indices.cl in front. Every result is deterministic: either one
// work-item applies all updates of its places in order, or (without reduction) integer atomics find the last update of
// each place first. Updates whose index is outside are dropped.
//   REDUCTION   0 none, 1 add, 2 mul, 3 max, 4 min; the reductions compute in ACC, the rest moves ELEM
//   LAST        the kernels that find last updates, else the sequential ones
//   TUPLES      the kernels of ScatterND, else those of ScatterElements
#if REDUCTION == 0
#define ITEM ELEM
#define APPLY(y, at, u, from) (y)[at] = (u)[from]
#else
#define ITEM REAL
#if REDUCTION == 1
#define COMBINE(a, b) ((a) + (b))
#elif REDUCTION == 2
#define COMBINE(a, b) ((a) * (b))
#elif REDUCTION == 3
#define COMBINE(a, b) ((a) >= (b) || (a) != (a) ? (a) : (b))
#else
#define COMBINE(a, b) ((a) <= (b) || (a) != (a) ? (a) : (b))
#endif
#define APPLY(y, at, u, from) STORE(y, at, COMBINE(LOAD(y, at), LOAD(u, from)))
#endif

#if TUPLES
// Target of tuple t of ScatterND, in rows of `inner` elements; -1 outside. `axes` holds (size, stride) of each coordinate.
static inline int tuple_place(global const INDEX *indices, global const int *axes, int t, int depth) {
    int at = 0;
    for (int k = 0; k < depth; ++k) {
        const INDEX i = from_front(indices[(size_t)t * depth + k], axes[2 * k]);
        if (i < 0 || i >= axes[2 * k]) return -1;
        at += (int)i * axes[2 * k + 1];
    }
    return at;
}
#endif

#if !LAST
// y = x
kernel void copy_all(global const ELEM *x, global ELEM *y, int spans, int count) {
    const int id = get_global_id(0);
    if (id < spans) copy_span(x, y, id * SPAN, count);
}

#if TUPLES
// One work-item iterates over all `count` tuples for a span of the columns of y's rows.
kernel void walk_tuples(
    global const INDEX *indices, global const ITEM *updates, global ITEM *y, global const int *axes, int count, int depth,
    int inner
) {
    const int begin = get_global_id(0) * SPAN, end = min(begin + SPAN, inner);
    if (begin >= inner) return;
    for (int t = 0; t < count; ++t) {
        const int at = tuple_place(indices, axes, t, depth);
        if (at < 0) continue;
        const int row = at * inner, from = t * inner;
        for (int c = begin; c < end; ++c) {
            APPLY(y, row + c, updates, from + c);
        }
    }
}
#else
// One work-item iterates over the `length` updates of one line along the axis. `lines` holds (size in indices, stride in indices,
// stride in x) of the `rank` other axes; along the axis, x has `size` elements `stride` apart, indices `step` apart.
kernel void walk_elements(
    global const INDEX *indices, global const ITEM *updates, global ITEM *y, global const int *lines, int items, int rank,
    int length, int step, int size, int stride
) {
    const int id = get_global_id(0);
    if (id >= items) return;
    int rest = id, from = 0, base = 0;
    for (int k = rank - 1; k >= 0; --k) {
        const int q = rest / lines[3 * k], p = rest - q * lines[3 * k];
        from += p * lines[3 * k + 1];
        base += p * lines[3 * k + 2];
        rest = q;
    }
    for (int j = 0; j < length; ++j, from += step) {
        const INDEX i = from_front(indices[from], size);
        if (i < 0 || i >= size) continue;
        const int at = base + (int)i * stride;
        APPLY(y, at, updates, from);
    }
}
#endif

#else
// last[p] = -1: no update yet.
kernel void no_update(global int *last, int count) {
    const int id = get_global_id(0);
    if (id < count) last[id] = -1;
}

#if TUPLES
// last[r] = number of the last update of row r.
kernel void last_tuples(global const INDEX *indices, global int *last, global const int *axes, int count, int depth) {
    const int id = get_global_id(0);
    if (id >= count) return;
    const int at = tuple_place(indices, axes, id, depth);
    if (at >= 0) atomic_max(last + at, id);
}
#else
// last[p] = number of the last update of element p. `axes` holds (size in indices, stride in x) of each axis, the
// stride being 0 for the replaced one.
kernel void last_elements(
    global const INDEX *indices, global int *last, global const int *axes, int items, int rank, int size, int stride
) {
    const int id = get_global_id(0);
    if (id >= items) return;
    const INDEX i = from_front(indices[id], size);
    if (i < 0 || i >= size) return;
    int rest = id, at = (int)i * stride;
    for (int k = rank - 1; k >= 0; --k) {
        const int q = rest / axes[2 * k];
        at += (rest - q * axes[2 * k]) * axes[2 * k + 1];
        rest = q;
    }
    atomic_max(last + at, id);
}
#endif

// Row r of y from its last update, or from x without one.
kernel void take_last(
    global const ELEM *x, global const ELEM *updates, global const int *last, global ELEM *y, int items, int chunks, int inner
) {
    const int id = get_global_id(0);
    if (id >= items) return;
    const int row = id / chunks, u = last[row];
    copy_span(
        u < 0 ? x + (size_t)row * inner : updates + (size_t)u * inner, y + (size_t)row * inner, (id - row * chunks) * SPAN,
        inner
    );
}
#endif
