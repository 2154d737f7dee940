// y[i, k] = (x[indices[i], k] - zero) scale, x in the panels of quantized/unpack_low_bit.cl, its rows being their columns.
// A work-item dequantises one word of a row. Grid: (ceil(columns / PER), count), which may be rounded up.
//   INDEX   int or long
#include "quantized/unpack_low_bit.cl"
#include "quantized/packed_word_offsets.cl"
#ifndef INDEX
#define INDEX long
#define WIDTH 64
#endif

kernel void quantized_gather(global const uint *restrict x, global const INDEX *restrict indices,
                             global const SCALE *restrict scale, ZEROS_PARAM global REAL *restrict y, int count, int size,
                             int columns, int block, float middle) {
    const int word = get_global_id(0), i = get_global_id(1), words = (columns + PER - 1) / PER;
    if (word >= words || i >= count) return;
    const INDEX given = indices[i];
    const int row = (int)clamp(given < 0 ? given + size : given, (INDEX)0, (INDEX)(size - 1));
    const int panel = row / WIDTH, lane = row % WIDTH, blocks = (columns + block - 1) / block;
    const size_t at = ((size_t)panel * blocks + word * PER / block) * WIDTH + lane;
    const uint numbers = x[PANEL_AT(panel, words) + WORD_AT(word, lane)];
    const float by = LOAD_SCALE(1, scale, at) * STEP, less = MIDDLE(1, at);
    for (int j = 0; j < PER && word * PER + j < columns; ++j)
        STORE(y, (size_t)i * columns + word * PER + j, (UNPACK(1, numbers, j) - less) * by);
}
