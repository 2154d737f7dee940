// Winograd's minimal filtering for 3x3 filters of stride 1 (Lavin and Gray, "Fast Algorithms for Convolutional Neural
// Networks", 2016): tiles of F x F outputs from A x A inputs, A = F + 2, with A * A multiply-adds, not 9 * F * F.
//   winograd_input    v = B^T d B for each tile d of x
//   m = u v over channels, for each of the A * A elements: conv/winograd_gemm_cpu.cl; on GPUs conv/pointwise.cl, as its groups
//   winograd_output   y = A^T m A + bias
// Tiles are numbered over batch, rows (th) and columns (tw); one call transforms tiles t0..t0 + count - 1 of each
// block. v and m are float [A * A, blocks, count, PACK]. Needs F (2 or 4), HAS_BIAS, MASK (1: the last block's lanes
// from `channels` on are set to zero). A work-item does `span` adjacent tiles in turn.
// Grid: ceil(count / span), blocks.
#include "conv/winograd_transforms.cl"

kernel void winograd_input(global const REAL *restrict x, global float *restrict v, int span, int t0, int count,
                           int blocks, int th, int tw, int ih, int iw, int ph, int pw) {
    const int block = get_global_id(1), begin = get_global_id(0) * span, end = min(begin + span, count);
    if (block >= blocks) return;
    for (int i = begin; i < end; ++i) {
        const int t = t0 + i, row = t / tw, n = row / th;
        const int y0 = (row - n * th) * F - ph, x0 = (t - row * tw) * F - pw;
        const size_t plane = (size_t)(n * blocks + block) * ih * iw;
        ACCV half_way[A * A];  // columns transformed along the width
        #pragma unroll
        for (int r = 0; r < A; ++r) {
            const int iy = y0 + r;
            ACCV d[A], e[A];
            #pragma unroll
            for (int c = 0; c < A; ++c) {
                const int ix = x0 + c;
                d[c] = (ACCV)0;
                if (iy >= 0 && iy < ih && ix >= 0 && ix < iw) d[c] = LOADV(x, (plane + (size_t)iy * iw + ix) * PACK);
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
            for (int r = 0; r < A; ++r) {
                VSTORE(PACK, e[r], (((size_t)(r * A + c) * blocks + block) * count + i) * PACK, v);
            }
        }
    }
}

#include "conv/optional_bias.cl"

kernel void winograd_output(global const float *restrict m, BIAS_PARAM global REAL *restrict y, int span, int t0,
                            int count, int blocks, int channels, int th, int tw, int oh, int ow EPILOGUE_PARAMS) {
    const int block = get_global_id(1), begin = get_global_id(0) * span, end = min(begin + span, count);
    if (block >= blocks) return;
    for (int i = begin; i < end; ++i) {
        const int t = t0 + i, row = t / tw, n = row / th;
        const int y0 = (row - n * th) * F, x0 = (t - row * tw) * F;
        ACCV half_way[F * A];
        #pragma unroll
        for (int r = 0; r < A; ++r) {
            ACCV e[A], f[F];
            #pragma unroll
            for (int c = 0; c < A; ++c) {
                e[c] = VLOAD(PACK, (((size_t)(r * A + c) * blocks + block) * count + i) * PACK, m);
            }
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
                if (y0 + r < oh && x0 + c < ow) {
                    const int at = (y0 + r) * ow + x0 + c;
#if HAS_BIAS
                    f[r] += LOADV(bias, block * PACK);
#endif
                    ACCV out = EPILOGUE(f[r], n, block, at, blocks, oh * ow);
#if MASK
                    out = MASK_LANES(out, channels - block * PACK);
#endif
                    STOREV(y, ((size_t)(n * blocks + block) * oh * ow + at) * PACK, out);
                }
            }
        }
    }
}
