// The body of kernels whose work-items walk along lines of `length` elements, `inner` apart: WALK(VEC) walks VEC adjacent lines from
// `base` on, WALK(1) one. `chunks` work-items share the `inner` columns of an outer position.
    const int id = get_global_id(0);
    if (id >= items) return;
    const int outer = id / chunks, begin = (id - outer * chunks) * VEC;
    int base = outer * length * inner + begin;
    if (begin + VEC <= inner) {
        WALK(VEC);
    } else {
        for (int c = begin; c < inner; ++c, ++base) WALK(1);
    }
