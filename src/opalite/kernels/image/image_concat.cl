// Concatenation of images. A generated prelude knows the inputs:
//   INPUTS              their parameters: images x0, x1..., then the numbers c1, c2... at which x1, x2... begin, and those of
//                       elements that they have along the axis, k0, k1...
//   SOURCE(c, READER)   READER(image, c - c_i, k_i) for the input that holds coordinate c of y along the axis
//   AXIS                of the image: 0 batch, 1 channels, 2 height, 3 width
//   ALIGNED             1: every input begins at a whole block, so that texels move as they are
// Grid: blocks * width, rows = batch * height.
#define BLOCK_OF(image, c, k) READ(image, (c) / 4 * width + w, row)
#define LANE_OF(image, c, k) pick_lane(BLOCK_OF(image, c, k), (c) & 3)
#define BATCH_OF(image, c, k) READ(image, at, (c) * height + h)
#define LINE_OF(image, c, k) READ(image, at, n * (k) + (c))
#define COLUMN_OF(image, c, k) READ(image, block * (k) + (c), row)

kernel void image_concat(INPUTS, write_only image2d_t y, int channels, int blocks, int height, int width, int rows) {
    const int at = get_global_id(0), row = get_global_id(1);
    if (at >= blocks * width || row >= rows) return;
    const int block = at / width, w = at - block * width, c = block * 4, n = row / height, h = row - n * height;
#if AXIS == 0
    const float4 v = SOURCE(n, BATCH_OF);
#elif AXIS == 2
    const float4 v = SOURCE(h, LINE_OF);
#elif AXIS == 3
    const float4 v = SOURCE(w, COLUMN_OF);
#elif ALIGNED
    const float4 v = SOURCE(c, BLOCK_OF);
#else
    float4 v = (float4)0;
    v.x = SOURCE(c, LANE_OF);
    if (c + 1 < channels) v.y = SOURCE(c + 1, LANE_OF);
    if (c + 2 < channels) v.z = SOURCE(c + 2, LANE_OF);
    if (c + 3 < channels) v.w = SOURCE(c + 3, LANE_OF);
#endif
    WRITE(y, at, row, v);
}
