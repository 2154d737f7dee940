// The first k elements of each line along the middle axis of [outer, length, inner]; needs include/ordering_and_heap.cl in front.
// Both kernels keep indices in a scratch region of their line and write values and indices in order.

static inline void write_line(
    global const REAL *line, global REAL *values, global long *indices, global const int *order, size_t base, int j, int inner
) {
    const size_t at = base + (size_t)j * inner;
    STORE(values, at, LOAD(line, (size_t)order[j] * inner));
    indices[at] = order[j];
}

#ifdef WG
// One work-group for each line: select by radix the k first, then sort these. `room` is k rounded up to a power of two.
kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void topk_select(
    global const REAL *x, global REAL *values, global long *indices, global int *scratch, int length, int inner, int k, int room
) {
    local uint count[256];
    local int digit, needed, taken;
    const int me = get_local_id(0), id = get_group_id(0);
    const int outer = id / inner, column = id - outer * inner;
    global const REAL *line = x + (size_t)outer * length * inner + column;
    global int *order = scratch + (size_t)id * room;

    // Digits of (code, index) from the highest down: after each, the first k are the elements below `bound`, and
    // `needed` of those equal to it in the bits of `mask`. The index decides among equal codes.
    CODE mask = 0, bound = 0;
    uint index_mask = 0, index_bound = 0;
    if (me == 0) needed = k;
    int shift = CODE_BITS - 8, in_code = 1, exact = 0;
    while (!exact) {
        for (int i = me; i < 256; i += WG) count[i] = 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int i = me; i < length; i += WG) {
            const CODE code = rank_code(line, (size_t)i * inner);
            if ((code & mask) == bound && ((uint)i & index_mask) == index_bound) {
                atomic_inc(&count[(in_code ? (uint)(code >> shift) : (uint)i >> shift) & 255]);
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (me == 0) {
            int d = 0, left = needed;
            while (d < 255 && left > (int)count[d]) left -= count[d++];
            digit = d;
            needed = left;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        exact = needed == (int)count[digit];
        if (in_code) {
            bound |= (CODE)digit << shift;
            mask |= (CODE)255 << shift;
        } else {
            index_bound |= (uint)digit << shift;
            index_mask |= 255u << shift;
        }
        if (shift == 0) {
            if (!in_code) exact = 1;
            in_code = 0;
            shift = 32;
        }
        shift -= 8;
        barrier(CLK_LOCAL_MEM_FENCE);
    }

    // All elements up to the bound, in any order; the sort that follows makes the result independent of it.
    if (me == 0) taken = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = me; i < length; i += WG) {
        const CODE code = rank_code(line, (size_t)i * inner) & mask;
        if (code < bound || (code == bound && ((uint)i & index_mask) <= index_bound)) {
            const int slot = atomic_inc(&taken);
            if (slot < k) order[slot] = i;
        }
    }
    for (int i = k + me; i < room; i += WG) order[i] = -1;
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);

    // Bitonic sort; -1 ranks last.
    for (int size = 2; size <= room; size *= 2) {
        for (int gap = size / 2; gap > 0; gap /= 2) {
            for (int i = me; i < room / 2; i += WG) {
                const int low = 2 * i - (i & (gap - 1)), high = low + gap;
                const int a = order[low], b = order[high];
                const int descending = (low & size) != 0;
                const int b_first = b >= 0 && (a < 0 || ranks_before(
                    rank_code(line, (size_t)b * inner), b, rank_code(line, (size_t)a * inner), a));
                const int a_first = a >= 0 && !b_first;
                if (descending ? a_first : b_first) {
                    order[low] = b;
                    order[high] = a;
                }
            }
            barrier(CLK_GLOBAL_MEM_FENCE);
        }
    }
    const size_t base = (size_t)outer * k * inner + column;
    for (int j = me; j < k; j += WG) write_line(line, values, indices, order, base, j, inner);
}

#else
// One work-item for each line: a heap of the k first so far, the last of them on top.
kernel void topk_heap(
    global const REAL *x, global REAL *values, global long *indices, global int *scratch, int lines, int length, int inner, int k
) {
    const int id = get_global_id(0);
    if (id >= lines) return;
    const int outer = id / inner, column = id - outer * inner;
    global const REAL *line = x + (size_t)outer * length * inner + column;
    global int *heap = scratch + (size_t)id * k;
    for (int i = 0; i < k; ++i) heap[i] = i;
    for (int i = k / 2 - 1; i >= 0; --i) sift_down(heap, i, k, line, inner);
    CODE top = rank_code(line, (size_t)heap[0] * inner);
    for (int i = k; i < length; ++i) {
        if (rank_code(line, (size_t)i * inner) >= top) continue;
        heap[0] = i;
        sift_down(heap, 0, k, line, inner);
        top = rank_code(line, (size_t)heap[0] * inner);
    }
    for (int last = k - 1; last > 0; --last) {
        const int worst = heap[0];
        heap[0] = heap[last];
        heap[last] = worst;
        sift_down(heap, 0, last, line, inner);
    }
    const size_t base = (size_t)outer * k * inner + column;
    for (int j = 0; j < k; ++j) write_line(line, values, indices, heap, base, j, inner);
}
#endif
