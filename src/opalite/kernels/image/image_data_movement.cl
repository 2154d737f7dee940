// y = x with its axes in another order, a part of it, or x inside a border. A generated prelude says from which element:
//   SOURCE_N, SOURCE_C, SOURCE_H, SOURCE_W   the coordinates in x of element (n, c, h, w) of y; -1: none, in a border
//   MOVE_PARAMS   what they need besides, each with a leading comma
// Coordinates are those of images (N, C, H, W), also where a side is a buffer.
//   SRC_BUFFER, DST_BUFFER   that side is a row-major buffer: of N,C,H,W, or with ROWS of [N, H, C]
//   SRC_T, LOAD_SRC(i)       of such a source: type of its elements, element i of x as float
//   WHOLE    texels of y are texels of x: SOURCE_C is that of the first of four channels, a multiple of 4
//   BORDERS  1: a coordinate may be -1, and such elements are `fill`
//   MODE     of the border: 0 constant, 1 reflect, 2 edge, 3 wrap
// blocks: ceil(C / 4) of y; xc, xh, xw: sizes of x. Grid: blocks * width, rows = batch * height.
#ifndef MOVE_PARAMS
#define MOVE_PARAMS
#define SOURCE_N n
#define SOURCE_C c
#define SOURCE_H h
#define SOURCE_W w
#endif
#ifndef MODE
#define MODE 0
#endif
#ifndef ROWS
#define ROWS 0
#endif
#if ROWS
#define OFFSET(n, c, h, w, C, H, W) (((size_t)(n) * (H) + (h)) * (C) + (c))
#else
#define OFFSET(n, c, h, w, C, H, W) ((((size_t)(n) * (C) + (c)) * (H) + (h)) * (W) + (w))
#endif
#if SRC_BUFFER
#define SOURCE_PARAM global const SRC_T *x
#define FETCH(n, c, h, w) LOAD_SRC(OFFSET(n, c, h, w, xc, xh, xw))
#else
#define SOURCE_PARAM read_only image2d_t x
#define FETCH(n, c, h, w) pick_lane(READ(x, (c) / 4 * xw + (w), (n) * xh + (h)), (c) & 3)
#endif
#if DST_BUFFER
#define TARGET_PARAM global REAL *y
#else
#define TARGET_PARAM write_only image2d_t y
#endif

#include "include/pad_coordinates.cl"

kernel void image_move(SOURCE_PARAM, TARGET_PARAM, float fill, int channels, int blocks, int height, int width, int rows,
                       int xc, int xh, int xw MOVE_PARAMS) {
    const int at = get_global_id(0), row = get_global_id(1);
    if (at >= blocks * width || row >= rows) return;
    const int block = at / width, w = at - block * width, n = row / height, h = row - n * height;
    float v[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#if WHOLE
    const int c = block * 4, sn = SOURCE_N, sh = SOURCE_H, sw = SOURCE_W;
    float4 texel = (float4)(fill);
#if BORDERS
    if (sn >= 0 && sh >= 0 && sw >= 0)
#endif
        texel = READ(x, SOURCE_C / 4 * xw + sw, sn * xh + sh);
    vstore4(MASK_LANES(texel, channels - c), 0, v);
#else
    for (int k = 0; k < 4; ++k) {
        const int c = block * 4 + k;
        if (c >= channels) break;
        const int sn = SOURCE_N, sc = SOURCE_C, sh = SOURCE_H, sw = SOURCE_W;
#if BORDERS
        v[k] = fill;
        if (sn < 0 || sc < 0 || sh < 0 || sw < 0) continue;
#endif
        v[k] = FETCH(sn, sc, sh, sw);
    }
#endif
#if DST_BUFFER
    for (int k = 0; k < 4; ++k)
        if (block * 4 + k < channels) STORE(y, OFFSET(n, block * 4 + k, h, w, channels, height, width), v[k]);
#else
    WRITE(y, at, row, vload4(0, v));
#endif
}
