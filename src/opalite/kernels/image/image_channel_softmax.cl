// Softmax over the channels of an image: y = exp(x - max) / sum, with LOG y = x - max - log(sum), at each position.
// Grid: width, rows = batch * height.
#define LANE_MAX(v) max(max((v).x, (v).y), max((v).z, (v).w))
#define LANE_SUM(v) ((v).x + (v).y + (v).z + (v).w)
// Block b at this position, `fill` in the lanes past the last channel.
#define BLOCK(b, fill) select((float4)(fill), READ(x, (b) * width + w, row), LANES < channels - (b) * 4)

kernel void image_softmax(read_only image2d_t x, write_only image2d_t y, int channels, int blocks, int width, int rows) {
    const int w = get_global_id(0), row = get_global_id(1);
    if (w >= width || row >= rows) return;
    float4 most = (float4)(-INFINITY), sums = (float4)0;
    for (int b = 0; b < blocks; ++b) most = max(most, BLOCK(b, -INFINITY));
    const float highest = LANE_MAX(most);
    for (int b = 0; b < blocks; ++b) sums += exp(BLOCK(b, -INFINITY) - highest);
    const float sum = LANE_SUM(sums);
    for (int b = 0; b < blocks; ++b) {
        const float4 v = READ(x, b * width + w, row) - highest;
#if LOG
        WRITE(y, b * width + w, row, MASK_LANES(v - log(sum), channels - b * 4));
#else
        WRITE(y, b * width + w, row, MASK_LANES(exp(v) / sum, channels - b * 4));
#endif
    }
}
