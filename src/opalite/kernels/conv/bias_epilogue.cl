// The store of channel-packed convolutions for PACK sums: adds the bias, computes the epilogue, and sets lanes
// past the last channel to zero. n, block, s: batch, channel block and position in the picture, of `blocks` blocks of `spatial`
// positions and `m` channels. Needs HAS_BIAS, MASK (0: no lane is past the last channel, or the epilogue keeps zeros).
#include "conv/optional_bias.cl"

static inline ACCV finish(ACCV v, int n, int block, int s, int blocks, int spatial, BIAS_PARAM int m EPILOGUE_PARAMS) {
#if HAS_BIAS
    v += LOADV(bias, block * PACK);
#endif
    v = EPILOGUE(v, n, block, s, blocks, spatial);
#if MASK
    v = MASK_LANES(v, m - block * PACK);
#endif
    return v;
}
