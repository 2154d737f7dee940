// Rows of `inner` numbers are quantised to int8 with a scale after each row (ir/constants/int8_rows.py), and appended to the
// cache: row i of batch entry b to position at + i, plus starts[b] if STARTS. Rows that would be outside
// the `size` positions of y are dropped, or wrap around if CIRCULAR. PACK | inner. Grid: (lines * WG), the rows of x.
//   WG     work-items that share a row: 1 on CPUs
//   ROWS   of a position
#include "include/reduce_lanes.cl"
#ifndef WG
#define WG 1
#define STARTS 0
#define CIRCULAR 0
#define ROWS 1
#endif
#define TAIL 4
#define STEPS 127
#define PUT_BYTES_1(v, p) (*(p) = (v))
#define PUT_BYTES_2(v, p) VSTORE_AT(char, 2, v, p)
#define PUT_BYTES_4(v, p) VSTORE_AT(char, 4, v, p)
#define PUT_BYTES_8(v, p) VSTORE_AT(char, 8, v, p)
#define PUT_BYTES_16(v, p) VSTORE_AT(char, 16, v, p)
#if STARTS
#define STARTS_PARAM global const long *restrict starts,
#else
#define STARTS_PARAM
#endif

__attribute__((reqd_work_group_size(WG, 1, 1)))
kernel void append_bytes(global const REAL *restrict x, STARTS_PARAM global char *restrict y, int lines, int middle, int count,
                         int size, int inner, int at) {
    const int line = get_group_id(0), item = get_local_id(0);
    if (line >= lines) return;
    const int outer = line / count;
    long place = at + line % count;
#if STARTS
    place += starts[outer / middle] * ROWS;
#if CIRCULAR
    place %= size;
    if (place < 0) place += size;
#endif
#endif
    x += (size_t)line * inner;
    // NaN is tracked separately from the maximum, since fmax would lose it.
    ACCV most = (ACCV)0, lost = (ACCV)0;
    for (int e = item * PACK; e < inner; e += WG * PACK) {
        const ACCV v = LOADV(x, e);
        most = fmax(most, fabs(v));
        lost += v - v;
    }
    ACC largest = FOLD_LANES(fmax, most) + SUM_LANES(lost);
#if WG > 1
    local ACC found[WG];
    found[item] = largest;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < WG; ++i) largest = isnan(found[i]) || found[i] > largest ? found[i] : largest;
#endif
    if (place < 0 || place >= size) return;
    const float scale = largest / STEPS, inverse = STEPS / largest;
    const ACC by = largest > 0 && isfinite(inverse) ? inverse : (ACC)0;
    y += ((size_t)outer * size + place) * (inner + TAIL);
    for (int e = item * PACK; e < inner; e += WG * PACK)
        CAT(PUT_BYTES_, PACK)(CONVERT_N(PACK, char)(rint(LOADV(x, e) * by)), y + e);
    if (item == 0) *(global float *)(y + inner) = scale;
}
