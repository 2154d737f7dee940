// y = the first `size` rows of each `held` rows of int8 with a scale after each (ir/constants/int8_rows.py), as floats. PACK | inner.
// Grid: (lines, inner / PACK), which may be rounded up; (lines) where WHOLE: a work-item takes a row.
#ifndef WHOLE
#define WHOLE 0
#endif
#define TAIL 4
#define GET_BYTES_1(p) (*(p))
#define GET_BYTES_2(p) VLOAD_AT(char, 2, p)
#define GET_BYTES_4(p) VLOAD_AT(char, 4, p)
#define GET_BYTES_8(p) VLOAD_AT(char, 8, p)
#define GET_BYTES_16(p) VLOAD_AT(char, 16, p)

kernel void widen_rows(global const char *restrict x, global REAL *restrict y, int lines, int size, int held, int inner) {
    const int line = get_global_id(0);
    if (line >= lines) return;
    x += ((size_t)(line / size) * held + line % size) * (inner + TAIL);
    y += (size_t)line * inner;
    const ACC scale = *(const global float *)(x + inner);
#if WHOLE
    for (int e = 0; e < inner; e += PACK) {
#else
    const int e = get_global_id(1) * PACK;
    if (e < inner) {
#endif
        STOREV(y, e, CONVERT_N(PACK, ACC)(CAT(GET_BYTES_, PACK)(x + e)) * scale);
    }
}
