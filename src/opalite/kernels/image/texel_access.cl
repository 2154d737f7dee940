// Access to tensors held as image2d of RGBA texels; stands in front of every kernel on images.
// Channel block c of row h of batch n begins at texel (c * W, n * H + h).  Images are pooled, so one may be larger than its
// tensor: texels outside the tensor are stale, and only negative coordinates read as zero.
constant sampler_t texels = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;
#define READ(image, column, row) read_imagef(image, texels, (int2)(column, row))
// write_imagef may round towards zero on half images, as NVIDIA's does: with HALF_TEXELS the value is rounded before.
#if HALF_TEXELS
static inline float4 round_to_half(float4 v) {
    ushort bits[4];
    vstore_half4_rte(v, 0, (half *)bits);
    return vload_half4(0, (half *)bits);
}
#define WRITE(image, column, row, v) write_imagef(image, (int2)(column, row), round_to_half(v))
#else
#define WRITE(image, column, row, v) write_imagef(image, (int2)(column, row), v)
#endif
// Texels as ACCV, for kernels that may sum halves in half; read_imageh and write_imageh convert nothing on half images.
#if defined(ACC_HALF)
#define READ_ACC(image, column, row) read_imageh(image, texels, (int2)(column, row))
#define WRITE_ACC(image, column, row, v) write_imageh(image, (int2)(column, row), v)
#else
#define READ_ACC READ
#define WRITE_ACC WRITE
#endif
// The first channel of a texel in every lane, for operands without channels.
#define READ_FIRST(image, column, row) ((float4)(READ(image, column, row).x))
// One channel of a texel.
static inline float pick_lane(float4 v, int lane) {
    return lane == 0 ? v.x : lane == 1 ? v.y : lane == 2 ? v.z : v.w;
}
