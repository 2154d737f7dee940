// Pooling of any rank up to 3 on row-major tensors: one work-item computes one output element.
// Needs KIND (0 max, 1 average, 2 lp), P (lp), COUNT_PADS (average: pads count in the divisor),
// INDICES (max: 1 row-major, 2 column-major positions into the second output),
// KD KH KW (window), SD SH SW (stride), DD DH DW (dilation). qd qh qw are the pads after the last element.
// Grid: output positions, channels, batch.
#if INDICES
#define INDEX_PARAM global long *restrict index,
#else
#define INDEX_PARAM
#endif

#include "include/count_unpadded.cl"

kernel void pool_direct(global const REAL *restrict x, global REAL *restrict y, INDEX_PARAM int batch, int channels,
                        int id, int ih, int iw, int od, int oh, int ow, int pd, int ph, int pw,
                        int qd, int qh, int qw EPILOGUE_PARAMS) {
    const int o = get_global_id(0), c = get_global_id(1), n = get_global_id(2);
    if (o >= od * oh * ow || c >= channels || n >= batch) return;
    const int ox = o % ow, oy = o / ow % oh, oz = o / (ow * oh);
    const int x0 = ox * SW - pw, y0 = oy * SH - ph, z0 = oz * SD - pd;
    const int plane = n * channels + c;
    const size_t base = (size_t)plane * id * ih * iw;
#if KIND == 0
    ACC acc = ACC_LOWEST;
    int best = -1;
#else
    ACC acc = 0;
#endif
    for (int kz = 0; kz < KD; ++kz) {
        const int iz = z0 + kz * DD;
        if (iz < 0 || iz >= id) continue;
        for (int ky = 0; ky < KH; ++ky) {
            const int iy = y0 + ky * DH;
            if (iy < 0 || iy >= ih) continue;
            for (int kx = 0; kx < KW; ++kx) {
                const int ix = x0 + kx * DW;
                if (ix < 0 || ix >= iw) continue;
                const ACC v = LOAD(x, base + ((size_t)iz * ih + iy) * iw + ix);
#if KIND == 0
                if (v > acc || best < 0 || acc != acc) {  // any number is larger than NaN
                    acc = v;
                    best = INDICES == 2 ? (ix * ih + iy) * id + iz : (iz * ih + iy) * iw + ix;
                }
#elif KIND == 1
                acc += v;
#elif P == 1
                acc += fabs(v);
#elif P == 2
                acc += v * v;
#else
                acc += pow(fabs(v), (ACC)P);
#endif
            }
        }
    }
#if KIND == 1
#if COUNT_PADS
    const int count = inside(z0, DD, KD, -pd, id + qd) * inside(y0, DH, KH, -ph, ih + qh)
                      * inside(x0, DW, KW, -pw, iw + qw);
#else
    const int count = inside(z0, DD, KD, 0, id) * inside(y0, DH, KH, 0, ih) * inside(x0, DW, KW, 0, iw);
#endif
    acc /= (ACC)max(count, 1);
#elif KIND == 2 && P == 2
    acc = sqrt(acc);
#elif KIND == 2 && P > 2
    acc = pow(acc, (ACC)1 / (ACC)P);
#endif
    const size_t at = (size_t)plane * (od * oh * ow) + o;
    STORE(y, at, EPILOGUE1(acc, n, c, o, channels, od * oh * ow));
#if INDICES
    index[at] = best < 0 ? -1 : (long)base + best;
#endif
}
