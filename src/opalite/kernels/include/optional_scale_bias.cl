// Parameters of a normalisation that may be missing, each with its comma: HAS_SCALE, HAS_BIAS.
#if HAS_SCALE
#define SCALE_PARAM global const REAL *scale,
#else
#define SCALE_PARAM
#endif
#if HAS_BIAS
#define BIAS_PARAM global const REAL *bias,
#else
#define BIAS_PARAM
#endif
