// For kernels that fold a vector into one element: FOLD_LANES(f, v) is f over the PACK lanes of ACCV v,
// where f(a, b) is a macro that works on vectors of any width.
#define FOLD_LANES_1(f, v) (v)
#define FOLD_LANES_2(f, v) f((v).lo, (v).hi)
#define FOLD_LANES_4(f, v) FOLD_LANES_2(f, f((v).lo, (v).hi))
#define FOLD_LANES_8(f, v) FOLD_LANES_4(f, f((v).lo, (v).hi))
#define FOLD_LANES_16(f, v) FOLD_LANES_8(f, f((v).lo, (v).hi))
#define FOLD_LANES(f, v) CAT(FOLD_LANES_, PACK)(f, v)
#define LANES_ADD(a, b) ((a) + (b))
#define SUM_LANES(v) FOLD_LANES(LANES_ADD, v)
