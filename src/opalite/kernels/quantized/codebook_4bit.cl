// 4-bit indices into the codebook TABLE_VALUES of 16 values.
//   LOOK_UP(n, w, j)   codebook values of numbers j of n words w
//   PERMUTE            the processor permutes floats of a register (vpermps): in n lanes, of 16, or of 8 twice
#ifndef TABLE_VALUES
#define TABLE_VALUES 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
#endif
#define LOOK_UP(n, w, j) CAT(look_up_, n)((w) >> ((j) * BITS))

static inline float look_up_1(uint w) {
    const float values[16] = {TABLE_VALUES};
    return values[w & 15u];
}

#define LOOK_UP_LANES(n) \
    static inline float##n look_up_##n(uint##n w) { \
        const float values[16] = {TABLE_VALUES}; \
        float##n found; \
        for (int i = 0; i < n; ++i) ((float *)&found)[i] = values[((const uint *)&w)[i] & 15u]; \
        return found; \
    }
LOOK_UP_LANES(2)
LOOK_UP_LANES(4)
// In assembly, as in dot_low_bit_int8.cl; it looks at the low 4 bits of a lane, or the low 3.
#if PERMUTE && PACK == 16
static inline float16 look_up_16(uint16 w) {
    const float16 values = (float16)(TABLE_VALUES);
    float16 found;
    __asm__("vpermps %2, %1, %0" : "=v"(found) : "v"(w), "v"(values));
    return found;
}
#else
LOOK_UP_LANES(16)
#endif
#if PERMUTE && PACK == 8
static inline float8 look_up_8(uint8 w) {
    const float16 values = (float16)(TABLE_VALUES);
    float8 low, high;
    __asm__("vpermps %2, %1, %0" : "=x"(low) : "x"(w), "x"(values.lo));
    __asm__("vpermps %2, %1, %0" : "=x"(high) : "x"(w), "x"(values.hi));
    return select(low, high, as_int8(w << 28));
}
#else
LOOK_UP_LANES(8)
#endif
