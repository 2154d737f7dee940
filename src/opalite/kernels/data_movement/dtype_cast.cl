// y = x in another storage type and the same layout: VEC elements at a time, `each` of them a work-item.
// Generated: SRC_T, DST_T; LOAD1, LOADP, STORE1, STOREP of one element and of VEC.
#ifndef VEC
#define VEC 4
#define SRC_T float
#define DST_T float
#define LOAD1(p, i) ((p)[i])
#define LOADP(p, i) vload4(0, (p) + (i))
#define STORE1(p, i, v) ((p)[i] = (v))
#define STOREP(p, i, v) vstore4(v, 0, (p) + (i))
#endif

kernel void place_cast_stream(global const SRC_T *x, global DST_T *y, int count, int each) {
    int i = get_global_id(0) * (VEC * each);
    if (i >= count) return;
    const int end = count - i < VEC * each ? count : i + VEC * each;
    for (; end - i >= VEC; i += VEC) {
        STOREP(y, i, LOADP(x, i));
    }
    for (; i < end; ++i) {
        STORE1(y, i, LOAD1(x, i));
    }
}
