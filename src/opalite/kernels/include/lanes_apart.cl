// Vectors of PACK floats from elements that lie 1, 2 or more apart.
#define FLOATV VEC_T(float, PACK)
#define INTV VEC_T(int, PACK)

// Every second of 2 * PACK elements.
static inline FLOATV load_even(global const float *x) {
#if PACK == 1
    return x[0];
#else
    const FLOATV low = LOADV(x, 0), high = LOADV(x, PACK);
    return (FLOATV)(low.even, high.even);
#endif
}

// Elements of x, which has `count`, from `from` on, `apart` apart; those outside are any.
static inline FLOATV load_apart(global const float *x, long from, long apart, long count) {
#if PACK == 1
    return x[clamp(from, 0L, count - 1)];
#else
    if (apart == 1 && from >= 0 && from + PACK <= count) return LOADV(x, from);
    if (apart == 2 && from >= 0 && from + 2 * PACK <= count) return load_even(x + from);
    float lanes[PACK];
    #pragma clang loop vectorize(disable) unroll(disable)
    for (int k = 0; k < PACK; ++k) lanes[k] = x[clamp(from + k * apart, 0L, count - 1)];
    return LOADV(lanes, 0);
#endif
}
