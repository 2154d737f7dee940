// Terms that are summed one after the other before their sum joins the others': rounding errors of long sums grow with the
// length of blocks and with their number, rather than with the product of both.
#define SUM_BLOCK 256
