// Resize of images along height and width. Output row o reads the entries o * rtaps and following of `row_at` (rows of x),
// weighted by the same entries of `row_weight`; columns likewise.  Nearest neighbours are one tap of weight 1.
// Grid: blocks * ow, rows = batch * oh.
kernel void image_resize(read_only image2d_t x, write_only image2d_t y, global const int *row_at,
                         global const float *row_weight, global const int *column_at, global const float *column_weight,
                         int rtaps, int ctaps, int blocks, int rows, int ih, int iw, int oh, int ow) {
    const int at = get_global_id(0), row = get_global_id(1);
    if (at >= blocks * ow || row >= rows) return;
    const int n = row / oh, r0 = (row - n * oh) * rtaps, block = at / ow, c0 = (at - block * ow) * ctaps;
    float4 sum = (float4)0;
    for (int r = r0; r < r0 + rtaps; ++r) {
        for (int c = c0; c < c0 + ctaps; ++c) {
            sum += row_weight[r] * column_weight[c] * READ(x, block * iw + column_at[c], n * ih + row_at[r]);
        }
    }
    WRITE(y, at, row, sum);
}
