// y = x in another storage type and the same layout: VEC elements at a time, `each` of them a work-item.
#ifndef VEC
#define VEC 4
#endif
#include "include/cast_access.cl"

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
