// Terms per block of a blocked summation: rounding errors of long sums grow with the
// length of blocks and with their number, rather than with the product of both.
#define SUM_BLOCK 256
