// Access to tensors held as image2d of RGBA texels; stands in front of every kernel on images.
// Channel block c of row h of batch n begins at texel (c * W, n * H + h).  Images are pooled, so one may be larger than its
// tensor: outside the tensor lie stale texels, and only coordinates below zero read as zero.
constant sampler_t texels = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;
#define READ(image, column, row) read_imagef(image, texels, (int2)(column, row))
#define WRITE(image, column, row, v) write_imagef(image, (int2)(column, row), v)
// The first channel of a texel in every lane, for operands without channels.
#define READ_FIRST(image, column, row) ((float4)(READ(image, column, row).x))
