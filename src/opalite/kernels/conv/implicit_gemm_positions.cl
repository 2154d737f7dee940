// Addressing of implicit-GEMM convolutions on channel-packed tensors: where the taps of a position are in x, and where its sums
// go in y. Needs KD KH KW (filter), SD SH SW (stride), DD DH DW (dilation), WIDE (more than 31 taps, at most 63), and
// SPREAD: 1 where blocks of the product are UD * UH * UW times the blocks of y, and a position is as many of y's, one beside
// the other (a transposed convolution); y, of rd x rh x rw, then begins after the first cd, ch, cw of them.
#define TAPS (KD * KH * KW)
#if WIDE
#define TAP_SET ulong
#else
#define TAP_SET uint
#endif
#include "conv/bias_epilogue.cl"

// Bits of the taps of position p that are inside x; none past the last position. `base`: the first tap in channel block 0, in
// blocks; may be outside.
static inline TAP_SET find_taps(int p, int positions, int *base, int ib, int id, int ih, int iw, int od, int oh, int ow, int pd,
                                int ph, int pw) {
    const int spatial = od * oh * ow, n = p / spatial, s = p - n * spatial;
    const int row = s / ow, oz = row / oh, cx = (s - row * ow) * SW - pw, cy = (row - oz * oh) * SH - ph, cz = oz * SD - pd;
    *base = n * ib * (id * ih * iw) + (cz * ih + cy) * iw + cx;
    TAP_SET inside = 0;
    for (int k = 0; k < TAPS; ++k) {
        const int vx = cx + k % KW * DW, vy = cy + k / KW % KH * DH, vz = cz + k / (KW * KH) * DD;
        const bool exists = vx >= 0 && vx < iw && vy >= 0 && vy < ih && vz >= 0 && vz < id;
        inside |= (TAP_SET)exists << k;
    }
    return p < positions ? inside : 0;
}

// Tiles may extend past the last position and block; results there are not stored.
typedef struct {
    int n, block, s;  // batch, channel block and position in the picture
    bool exists;
} Target;

#if SPREAD
#define SPREAD_PARAM , int rd, int rh, int rw, int cd, int ch, int cw
#define SPREAD_ARG , rd, rh, rw, cd, ch, cw
#define WHOLE (rd * rh * rw)
#else
#define SPREAD_PARAM
#define SPREAD_ARG
#define WHOLE (od * oh * ow)
#endif

// ob: blocks of y.
static inline Target find_target(int p, int block, int positions, int ob, int od, int oh, int ow SPREAD_PARAM) {
    Target t;
#if SPREAD
    const int spatial = od * oh * ow, phase = block / ob, n = p / spatial, s = p - n * spatial, row = s / ow, oz = row / oh;
    const int x = (s - row * ow) * UW + phase % UW - cw, y = (row - oz * oh) * UH + phase / UW % UH - ch;
    const int z = oz * UD + phase / (UW * UH) - cd;
    t.exists = p < positions && phase < UD * UH * UW && x >= 0 && x < rw && y >= 0 && y < rh && z >= 0 && z < rd;
    t.n = t.exists ? n : 0;
    t.block = t.exists ? block - phase * ob : 0;
    t.s = t.exists ? (z * rh + y) * rw + x : 0;
#else
    const int spatial = od * oh * ow;
    t.exists = p < positions && block < ob;
    p = min(p, positions - 1);
    t.block = min(block, ob - 1);
    t.n = p / spatial;
    t.s = p - t.n * spatial;
#endif
    return t;
}

static inline ACCV finish_tile(ACCV v, Target t, int ob, int whole, BIAS_PARAM int m EPILOGUE_PARAMS) {
    return finish(v, t.n, t.block, t.s, ob, whole, BIAS_ARG m EPILOGUE_ARGS);
}
#define TARGET(p, cb) find_target(p, cb, positions, ob, od, oh, ow SPREAD_ARG)
#define FINISH(v, p, cb) finish_tile(v, TARGET(p, cb), ob, WHOLE, BIAS_ARG m EPILOGUE_ARGS)
#define PUT(v, p, cb) do { \
        const Target t_ = TARGET(p, cb); \
        if (t_.exists) STOREV(y, (((size_t)t_.n * ob + t_.block) * WHOLE + t_.s) * PACK, v); \
    } while (0)
