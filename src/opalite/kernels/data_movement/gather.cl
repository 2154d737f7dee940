// Reads at positions given by indices; needs data_movement/gather_scatter_indices.cl in front. A grid of `items` work-items may be rounded up.

// y[o, i, :] = x[o, indices[i], :]: rows of `inner` elements, each in `chunks` spans; `count` indices into `size` rows.
kernel void gather(
    global const ELEM *x, global const INDEX *indices, global ELEM *y, int items, int chunks, int count, int size, int inner
) {
    const int id = get_global_id(0);
    if (id >= items) return;
    const int row = id / chunks, o = row / count;
    const int at = clamp_index(indices[row - o * count], size);
    copy_span(x + ((size_t)o * size + at) * inner, y + (size_t)row * inner, (id - row * chunks) * SPAN, inner);
}

// y[p] = x[p with its coordinate along one axis replaced by indices[p]]. `axes` holds (size in y, stride in x) of each
// of `rank` axes, the stride being 0 for the replaced one, which has `size` elements `stride` apart in x.
kernel void gather_elements(
    global const ELEM *x, global const INDEX *indices, global ELEM *y, global const int *axes, int items, int rank, int size,
    int stride
) {
    const int id = get_global_id(0);
    if (id >= items) return;
    int rest = id, from = clamp_index(indices[id], size) * stride;
    for (int k = rank - 1; k >= 0; --k) {
        const int q = rest / axes[2 * k];
        from += (rest - q * axes[2 * k]) * axes[2 * k + 1];
        rest = q;
    }
    y[id] = x[from];
}

// y[r, :] = x[batch of r, indices[r, 0], .., indices[r, depth - 1], :]; `axes` holds (size, stride) of each indexed axis.
kernel void gather_nd(
    global const ELEM *x, global const INDEX *indices, global ELEM *y, global const int *axes, int items, int chunks, int depth,
    int per_batch, int batch_stride, int inner
) {
    const int id = get_global_id(0);
    if (id >= items) return;
    const int row = id / chunks;
    int from = row / per_batch * batch_stride;
    for (int k = 0; k < depth; ++k) from += clamp_index(indices[(size_t)row * depth + k], axes[2 * k]) * axes[2 * k + 1];
    copy_span(x + from, y + (size_t)row * inner, (id - row * chunks) * SPAN, inner);
}
