// Rows of tensors held as images with texels along them: WG work-items share a row (reduce/work_group_rows.cl).
//   NORMALIZE  y = (x - mean) / sqrt(variance + epsilon) * scale + bias, with RMS y = x / sqrt(mean(x^2) + epsilon) * scale + bias;
//              HAS_SCALE, HAS_BIAS: one element for each column, in whole texels, zeros past the last; then the epilogue
//   otherwise  softmax: y = exp(x - max) / sum, with LOG y = x - max - log(sum)
// columns: elements of a row; H: rows of one batch as the image counts them. Grid: WG, rows.
#define ADD2(a, b) ((a) + (b))
#define MAX2(a, b) fmax(a, b)
#define LANE_MAX(v) fmax(fmax((v).x, (v).y), fmax((v).z, (v).w))
// Texel i of the row, `fill` in the lanes past its end.
#define TEXEL(i, fill) select((float4)(fill), READ(x, i, row), LANES < columns - (i) * 4)

#if NORMALIZE
#include "include/optional_scale_bias.cl"

kernel ROW_GROUP void image_normalize_rows(read_only image2d_t x, SCALE_PARAM BIAS_PARAM write_only image2d_t y, int rows,
                                           int columns, int H, float epsilon EPILOGUE_PARAMS) {
    LOCAL_PARTS(float, part);
    const int texels_ = (columns + 3) / 4, first = get_local_id(0);
    const bool inside = get_global_id(1) < rows;
    const int row = inside ? get_global_id(1) : 0, end = inside ? texels_ : 0;
#if RMS
    const float mean = 0.0f;
#else
    float4 sums = (float4)0;
    for (int i = first; i < end; i += WG) sums += READ(x, i, row);  // lanes past the end are zero
    float mean = SUM_LANES(sums);
    FOLD_ROW(ADD2, mean, part);
    mean /= columns;
#endif
    float4 squares = (float4)0;
    for (int i = first; i < end; i += WG) {
        const float4 d = TEXEL(i, mean) - mean;
        squares += d * d;
    }
    float variance = SUM_LANES(squares);
    FOLD_ROW(ADD2, variance, part);
    const float factor = 1.0f / sqrt(variance / columns + epsilon);
    for (int i = first; i < end; i += WG) {
        float4 v = (READ(x, i, row) - mean) * factor;
#if HAS_SCALE
        v *= LOADV(scale, i * 4);
#endif
#if HAS_BIAS
        v += LOADV(bias, i * 4);
#endif
        v = EPILOGUE(v, row / H, i, row % H, 0, texels_, H, 1);
        WRITE(y, i, row, MASK_LANES(v, columns - i * 4));
    }
}

#else
kernel ROW_GROUP void image_softmax_rows(read_only image2d_t x, write_only image2d_t y, int rows, int columns) {
    LOCAL_PARTS(float, part);
    const int texels_ = (columns + 3) / 4, first = get_local_id(0);
    const bool inside = get_global_id(1) < rows;
    const int row = inside ? get_global_id(1) : 0, end = inside ? texels_ : 0;
    float4 most = (float4)(-INFINITY);
    for (int i = first; i < end; i += WG) most = fmax(most, TEXEL(i, -INFINITY));
    float highest = LANE_MAX(most);
    FOLD_ROW(MAX2, highest, part);
    float4 sums = (float4)0;
    for (int i = first; i < end; i += WG) sums += exp(TEXEL(i, -INFINITY) - highest);
    float sum = SUM_LANES(sums);
    FOLD_ROW(ADD2, sum, part);
    for (int i = first; i < end; i += WG) {
        const float4 v = READ(x, i, row) - highest;
#if LOG
        WRITE(y, i, row, MASK_LANES(v - log(sum), columns - i * 4));
#else
        WRITE(y, i, row, MASK_LANES(exp(v) / sum, columns - i * 4));
#endif
    }
}
#endif
