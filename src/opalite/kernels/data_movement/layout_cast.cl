// y = x in another layout and storage type.  One work-item moves the lanes of one output block at one spatial position.
//   SRC_PACK, DST_PACK   channels in a block: 1 is row-major; images have 4
//   SRC_IMAGE, DST_IMAGE whether the side is an image2d: block cb of row h of batch n starts at texel (cb * W, n * H + h)
//   ALONG                1: the image of a tensor of three dimensions, whose texels hold four neighbours of its rows:
//                        those from s on of channel c of batch n are texel (s / 4, n * C + c)
//   LOAD1(p, i), STORE1(p, i, v), VALUE: generated accesses and the type between them
#ifndef SRC_PACK
#define SRC_PACK 1
#define DST_PACK 4
#define SRC_IMAGE 0
#define DST_IMAGE 0
#define VALUE float
#define SRC_T float
#define DST_T float
#define LOAD1(p, i) ((p)[i])
#define STORE1(p, i, v) ((p)[i] = (v))
#endif
#ifndef ALONG
#define ALONG 0
#endif
#if SRC_IMAGE || DST_IMAGE
#include "image/texel_access.cl"
#endif
#if SRC_IMAGE
#define SRC_PARAM read_only image2d_t x
#else
#define SRC_PARAM global const SRC_T *x
#endif
#if DST_IMAGE
#define DST_PARAM write_only image2d_t y
#else
#define DST_PARAM global DST_T *y
#endif

// channels: C; rows, width: H and W of the spatial extent as a matrix, of ALONG 1 and the row; blocks: of y, ceil(C / DST_PACK),
// or C where its texels lie along the rows; outer: N * blocks
kernel void place_cast(SRC_PARAM, DST_PARAM, int channels, int rows, int width, int blocks, int outer) {
    const int first = get_global_id(0);
    const int nb = get_global_id(1);
    const int spatial = rows * width;
    const int n = nb / blocks;
#if DST_IMAGE && ALONG
    const int s0 = first * 4, c0 = nb - n * blocks;
#define C_OF(k) c0
#define S_OF(k) (s0 + (k))
#else
    const int s0 = first, c0 = (nb - n * blocks) * DST_PACK;
#define C_OF(k) (c0 + (k))
#define S_OF(k) s0
#endif
    if (s0 >= spatial || nb >= outer) return;
    VALUE v[DST_PACK];
#pragma unroll
    for (int k = 0; k < DST_PACK; ++k) {
        const int c = C_OF(k), s = S_OF(k);
        v[k] = (VALUE)0;
        if (c < channels && s < spatial) {
#if SRC_IMAGE
#if ALONG
            const float4 texel = READ(x, s / 4, n * channels + c);
            const int lane = s % 4;
#else
            const float4 texel = READ(x, c / 4 * width + s % width, n * rows + s / width);
            const int lane = c % 4;
#endif
            v[k] = (VALUE)(lane == 0 ? texel.x : lane == 1 ? texel.y : lane == 2 ? texel.z : texel.w);
#else
            const int source_blocks = (channels + SRC_PACK - 1) / SRC_PACK;
            const size_t i = (((size_t)n * source_blocks + c / SRC_PACK) * spatial + s) * SRC_PACK + c % SRC_PACK;
            v[k] = LOAD1(x, i);
#endif
        }
    }
#if DST_IMAGE
#if ALONG
    WRITE(y, first, nb, (float4)((float)v[0], (float)v[1], (float)v[2], (float)v[3]));
#else
    WRITE(y, c0 / 4 * width + s0 % width, n * rows + s0 / width,
          (float4)((float)v[0], (float)v[1], (float)v[2], (float)v[3]));
#endif
#else
    const size_t o = ((size_t)nb * spatial + s0) * DST_PACK;
#pragma unroll
    for (int k = 0; k < DST_PACK; ++k) {
        STORE1(y, o + k, v[k]);
    }
#endif
}
