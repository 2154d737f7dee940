// Common beginning of convolution kernels: the optional bias as a kernel parameter and function argument, and
// the multiply-add.
#if HAS_BIAS
#define BIAS_PARAM global const REAL *restrict bias,
#define BIAS_ARG bias,
#else
#define BIAS_PARAM
#define BIAS_ARG
#endif
#if defined(ACC_IS_FLOAT)
#define MULADD(a, b, c) fma(a, b, c)
#else
#define MULADD(a, b, c) ((a) * (b) + (c))
#endif
