// Offsets of the matrices of product number z, for the matrix product kernels.
// batch holds (size, step in a, step in b) of each of `dims` batch dimensions, the innermost last; steps in elements.
static inline void batch_offsets(global const int *batch, int dims, int z, size_t *a, size_t *b) {
    *a = 0;
    *b = 0;
    for (int d = dims - 1; d >= 0; --d) {
        const int at = z % batch[3 * d];
        z /= batch[3 * d];
        *a += (size_t)at * batch[3 * d + 1];
        *b += (size_t)at * batch[3 * d + 2];
    }
}
