// Concatenation of images along channels. A generated prelude knows the inputs:
//   INPUTS              their parameters: images x0, x1..., then the numbers c1, c2... of the channels at which x1, x2... begin
//   SOURCE(c, READER)   READER(image, c - c_i) for the input that holds channel c of y
//   ALIGNED             1: every input begins at a whole block, so that texels move as they are
// Grid: blocks * width, rows = batch * height.
#define BLOCK_OF(image, c) READ(image, (c) / 4 * width + w, row)
#define LANE_OF(image, c) pick_lane(BLOCK_OF(image, c), (c) & 3)

kernel void image_concat(INPUTS, write_only image2d_t y, int channels, int blocks, int width, int rows) {
    const int at = get_global_id(0), row = get_global_id(1);
    if (at >= blocks * width || row >= rows) return;
    const int block = at / width, w = at - block * width, c = block * 4;
#if ALIGNED
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
