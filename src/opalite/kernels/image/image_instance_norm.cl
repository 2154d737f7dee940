// Instance and group normalisation of images by channel. In one launch (ALONE), where a work-group has a block of channels to
// itself, or in three, whose moments norm/instance_group_norm_packed.cl joins:
//   MOMENTS   for each block and each of its `parts`, `lines` rows of it: mean and sum of squared differences from it
//   APPLY     y = x * factor + offset, which the table has for each channel, then the epilogue
// WG work-items share a block or part (reduce/work_group_rows.cl). channels, blocks, height, width: of x and y.
#define ADD2(a, b) ((a) + (b))

#if defined(APPLY)
// Grid: blocks * width, rows = batch * height.  table: [batch * blocks, 2, 4].
kernel void image_normalize_apply(read_only image2d_t x, global const float *table, write_only image2d_t y, int channels,
                                  int blocks, int height, int width, int rows EPILOGUE_PARAMS) {
    const int at = get_global_id(0), row = get_global_id(1);
    if (at >= blocks * width || row >= rows) return;
    const int block = at / width, n = row / height;
    const size_t of = (size_t)(n * blocks + block) * 8;
    float4 v = fma(READ(x, at, row), vload4(0, table + of), vload4(0, table + of + 4));
    v = EPILOGUE(v, n, block, row - n * height, at - block * width, blocks, height, width);
    WRITE(y, at, row, MASK_LANES(v, channels - block * 4));
}

#else
// Mean, and sum of squared differences from it, of the `lines` rows from `row` on of a block whose first column is `column`.
#define TEXEL(i) READ(x, column + (i) % width, row + (i) / width)
#define SUM_MOMENTS(mean, squares, lines) do { \
        const int count_ = (lines) * width; \
        float4 sum_ = (float4)0; \
        for (int i = first; i < count_; i += WG) sum_ += TEXEL(i); \
        FOLD_ROW(ADD2, sum_, part); \
        (mean) = sum_ / (float)count_; \
        float4 differences_ = (float4)0; \
        for (int i = first; i < count_; i += WG) { \
            const float4 d_ = TEXEL(i) - (mean); \
            differences_ += d_ * d_; \
        } \
        FOLD_ROW(ADD2, differences_, part); \
        (squares) = differences_; \
    } while (0)

#if defined(MOMENTS)
// Grid: WG, batch * blocks * parts.  moments: [batch * blocks, parts, 2, 4].
kernel ROW_GROUP void image_normalize_moments(read_only image2d_t x, global float *moments, int parts, int lines, int blocks,
                                              int height, int width) {
    LOCAL_PARTS(float4, part);
    const int id = get_global_id(1), nb = id / parts, n = nb / blocks, line = (id - nb * parts) * lines;
    const int first = get_local_id(0), column = (nb - n * blocks) * width, row = n * height + line;
    float4 mean, squares;
    SUM_MOMENTS(mean, squares, min(lines, height - line));
    if (first == 0) {
        vstore4(mean, 0, moments + (size_t)id * 8);
        vstore4(squares, 0, moments + (size_t)id * 8 + 4);
    }
}

#else
#include "include/optional_scale_bias.cl"
// Four elements of a parameter from channel c on, 0 past the last.
static inline float4 four_of(global const REAL *p, int c, int channels) {
    float v[4];
    for (int k = 0; k < 4; ++k) v[k] = c + k < channels ? LOAD(p, c + k) : 0.0f;
    return vload4(0, v);
}

// ALONE: each channel by itself. Grid: WG, batch * blocks.
kernel ROW_GROUP void image_normalize(read_only image2d_t x, SCALE_PARAM BIAS_PARAM write_only image2d_t y, int channels,
                                      int blocks, int height, int width, float epsilon EPILOGUE_PARAMS) {
    LOCAL_PARTS(float4, part);
    const int nb = get_global_id(1), n = nb / blocks, block = nb - n * blocks;
    const int first = get_local_id(0), column = block * width, row = n * height;
    float4 mean, squares;
    SUM_MOMENTS(mean, squares, height);
    float4 factor = 1.0f / sqrt(squares / (float)(height * width) + epsilon), offset = (float4)0;
#if HAS_SCALE
    factor *= four_of(scale, block * 4, channels);
#endif
#if HAS_BIAS
    offset = four_of(bias, block * 4, channels);
#endif
    for (int i = first; i < height * width; i += WG) {
        const int h = i / width, w = i - h * width;
        const float4 v = EPILOGUE(fma(TEXEL(i) - mean, factor, offset), n, block, h, w, blocks, height, width);
        WRITE(y, column + w, row + h, MASK_LANES(v, channels - block * 4));
    }
}
#endif
#endif
