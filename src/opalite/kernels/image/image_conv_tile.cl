// What convolutions of images share: sums of TW columns of TB output blocks, which begin with the bias. Needs HAS_BIAS.
// Filters: texel (b * 4 + c, o * KH*KW + k) holds the weights of input channel c of block b and tap k for output block o;
// with ACROSS, for many taps, texel ((k * ib + b) * 4 + c, o) does.
#ifndef TW
#define TW 4
#define TB 1
#endif
#if HAS_BIAS
#define BIAS_PARAM read_only image2d_t bias,
#define START(o) READ_ACC(bias, o, 0)
#else
#define BIAS_PARAM
#define START(o) ((ACCV)0)
#endif
#if ACROSS
#define FILTER(o, tap, b, c) READ_ACC(weights, ((tap) * ib + (b)) * 4 + c, o)
#else
#define FILTER(o, tap, b, c) READ_ACC(weights, (b) * 4 + c, (o) * (KH * KW) + (tap))
#endif
#define EACH_BLOCK _Pragma("unroll") for (int o = 0; o < TB; ++o)
#define EACH_COLUMN _Pragma("unroll") for (int t = 0; t < TW; ++t)

// acc[o][t] += in[t] of input block b by the weights of tap (ky, kx) and output block first + o.
#define ADD_TAP(acc, in, first, b, ky, kx) \
    EACH_BLOCK { \
        const int at_ = (first) + o, tap_ = (ky) * KW + (kx); \
        const ACCV w0 = FILTER(at_, tap_, b, 0), w1 = FILTER(at_, tap_, b, 1); \
        const ACCV w2 = FILTER(at_, tap_, b, 2), w3 = FILTER(at_, tap_, b, 3); \
        EACH_COLUMN { \
            acc[o][t] = mad(in[t].x, w0, acc[o][t]); \
            acc[o][t] = mad(in[t].y, w1, acc[o][t]); \
            acc[o][t] = mad(in[t].z, w2, acc[o][t]); \
            acc[o][t] = mad(in[t].w, w3, acc[o][t]); \
        } \
    }

// Store the sums of columns x0, x0 + STEP, … of row oy of image n, of the blocks of a group from `tile` on.
#define STORE_SUMS(acc, STEP) \
    EACH_BLOCK { \
        const int block = first + o; \
        if (tile + o >= ob) break; \
        EACH_COLUMN { \
            const int ox = x0 + t * (STEP); \
            if (ox >= ow) break; \
            const ACCV v = EPILOGUE(acc[o][t], n, block, oy, ox, groups * ob, oh, ow); \
            WRITE_ACC(y, block * ow + ox, row, MASK_LANES(v, m - block * 4)); \
        } \
    }
