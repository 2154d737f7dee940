// Shared by data_movement/gather.cl and data_movement/scatter.cl: rows of elements of any type, and indices.
//   ELEM   uchar, ushort, uint or ulong: the type that moves one element      INDEX  int or long
//   VEC    elements moved at once      SPAN   elements of a row that one work-item copies, a multiple of VEC

// Elements [begin, begin + SPAN) of a row of `count`.
static inline void copy_span(global const ELEM *from, global ELEM *to, int begin, int count) {
    const int end = min(begin + SPAN, count);
    int i = begin;
    for (; i + VEC <= end; i += VEC) VSTORE(VEC, VLOAD(VEC, i, from), i, to);
    for (; i < end; ++i) to[i] = from[i];
}

// `index` counted from the front; it may still are outside [0, size).
static inline INDEX from_front(INDEX index, int size) { return index < 0 ? index + size : index; }

static inline int clamp_index(INDEX index, int size) {
    return (int)clamp(from_front(index, size), (INDEX)0, (INDEX)(size - 1));
}
