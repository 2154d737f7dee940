// Zero points of x for VNNI kernels, which need unsigned bytes: signed ones are flipped in their
// highest bit, which shifts them and their zero point by 128. Needs A_SIGNED (x is int8) and
//   X_ZERO  0 none, 1 an argument, which is part of `start` already, 2 in memory, beside the sums over each filter
// OWN_ZERO declares `zero`.
#if A_SIGNED
#define A_BYTE char
#define FLIP 0x80808080u
#define SHIFT 128
#else
#define A_BYTE uchar
#define FLIP 0u
#define SHIFT 0
#endif
#if X_ZERO == 2
#define X_ZERO_PARAM global const A_BYTE *restrict x_zero, global const int *restrict sums,
#define OWN_ZERO const int zero = x_zero[0];
#elif X_ZERO == 1
#define X_ZERO_PARAM int zero,
#define OWN_ZERO
#else
#define X_ZERO_PARAM
#define OWN_ZERO const int zero = 0;
#endif
