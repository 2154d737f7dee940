// Winograd's minimal filtering (conv/winograd.cl) of tensors held as images, 3x3 filters of stride 1: transformed filters are
// read as texels, transformed tiles lie in buffers.
//   image_winograd_input     v = B^T d B for each tile d of x
//   image_winograd_product   m[e, o, t] = sum over b, c of v[e, b, t][c] * u[e, b, c, o]: TW tiles of TB output blocks each
//   image_winograd_output    y = A^T m A + bias
// Tiles t0..t0 + count - 1 are taken, numbered over batch, rows (th) and columns (tw); v and m are float
// [A * A, blocks, count, 4]. u: an image of width ib * 4 and height A * A * ob, texel (b * 4 + c, o * A * A + e).
// Needs F (2 or 4), HAS_BIAS, TW, TB. Grids: count, blocks; ceil(count / TW), ceil(ob / TB), A * A.
#include "image/image_conv_tile.cl"
#include "conv/winograd_transforms.cl"
#define AT(p, i) (*((p) + (i)))

kernel void image_winograd_input(read_only image2d_t x, global float4 *v, int t0, int count, int blocks, int th, int tw, int ih,
                                 int iw, int ph, int pw) {
    const int i = get_global_id(0), block = get_global_id(1);
    if (i >= count || block >= blocks) return;
    const int t = t0 + i, row = t / tw, n = row / th;
    const int y0 = (row - n * th) * F - ph, x0 = (t - row * tw) * F - pw;
    ACCV half_way[A * A];  // columns transformed along the width
    #pragma unroll
    for (int r = 0; r < A; ++r) {
        const int iy = y0 + r;
        const bool inside = iy >= 0 && iy < ih;
        ACCV d[A], e[A];
        #pragma unroll
        for (int c = 0; c < A; ++c) {
            const int ix = x0 + c;
            d[c] = READ_ACC(x, inside && ix >= 0 && ix < iw ? block * iw + ix : -1, n * ih + iy);
        }
        transform_input(d, e);
        #pragma unroll
        for (int c = 0; c < A; ++c) half_way[c * A + r] = e[c];
    }
    #pragma unroll
    for (int c = 0; c < A; ++c) {
        ACCV e[A];
        transform_input(half_way + c * A, e);
        #pragma unroll
        for (int r = 0; r < A; ++r) AT(v, ((size_t)(r * A + c) * blocks + block) * count + i) = e[r];
    }
}

kernel void image_winograd_product(global const float4 *v, read_only image2d_t u, global float4 *m, int count, int ib, int ob) {
    const int p0 = get_global_id(0) * TW, first = get_global_id(1) * TB, e = get_global_id(2);
    if (p0 >= count || first >= ob || e >= A * A) return;
    ACCV acc[TB][TW];
    EACH_BLOCK {
        EACH_COLUMN acc[o][t] = (ACCV)0;
    }
    for (int b = 0; b < ib; ++b) {
        global const float4 *column = v + ((size_t)e * ib + b) * count;
        ACCV in[TW];
        EACH_COLUMN in[t] = AT(column, min(p0 + t, count - 1));
        EACH_BLOCK {
            const int at = (first + o) * A * A + e;
            const ACCV w0 = READ_ACC(u, b * 4, at), w1 = READ_ACC(u, b * 4 + 1, at);
            const ACCV w2 = READ_ACC(u, b * 4 + 2, at), w3 = READ_ACC(u, b * 4 + 3, at);
            EACH_COLUMN acc[o][t] = mad(in[t].w, w3, mad(in[t].z, w2, mad(in[t].y, w1, mad(in[t].x, w0, acc[o][t]))));
        }
    }
    EACH_BLOCK {
        if (first + o >= ob) break;
        EACH_COLUMN {
            if (p0 + t < count) AT(m, ((size_t)e * ob + first + o) * count + p0 + t) = acc[o][t];
        }
    }
}

kernel void image_winograd_output(global const float4 *m, BIAS_PARAM write_only image2d_t y, int t0, int count, int blocks,
                                  int channels, int th, int tw, int oh, int ow EPILOGUE_PARAMS) {
    const int i = get_global_id(0), block = get_global_id(1);
    if (i >= count || block >= blocks) return;
    const int t = t0 + i, row = t / tw, n = row / th;
    const int y0 = (row - n * th) * F, x0 = (t - row * tw) * F;
    const ACCV start = START(block);
    ACCV half_way[F * A];
    #pragma unroll
    for (int r = 0; r < A; ++r) {
        ACCV e[A], f[F];
        #pragma unroll
        for (int c = 0; c < A; ++c) e[c] = AT(m, ((size_t)(r * A + c) * blocks + block) * count + i);
        transform_output(e, f);
        #pragma unroll
        for (int c = 0; c < F; ++c) half_way[c * A + r] = f[c];
    }
    #pragma unroll
    for (int c = 0; c < F; ++c) {
        ACCV f[F];
        transform_output(half_way + c * A, f);
        #pragma unroll
        for (int r = 0; r < F; ++r) {
            const int oy = y0 + r, ox = x0 + c;
            if (oy >= oh || ox >= ow) continue;
            const ACCV out = EPILOGUE(f[r] + start, n, block, oy, ox, blocks, oh, ow);
            WRITE_ACC(y, block * ow + ox, n * oh + oy, MASK_LANES(out, channels - block * 4));
        }
    }
}
