// Shared by reduce/topk.cl and vision/non_max_suppression.cl: a total order of the elements of a line, and a binary heap of their indices.
//   LARGEST   larger elements rank first, else smaller ones; NaN is the largest; equal elements rank by index
//   WORST_ON_TOP   the heap's top is the element that ranks last, else the one that ranks first
#if STORAGE == 2 || STORAGE == 4 || STORAGE == 6
#define CODE ulong
#define CODE_BITS 64
#else
#define CODE uint
#define CODE_BITS 32
#endif
#if STORAGE == 2
#define AS_CODE(v) as_ulong(v)
#define NAN_BITS 0x7ff8000000000000ul
#else
#define AS_CODE(v) as_uint(v)
#define NAN_BITS 0x7fc00000u
#endif
#define SIGN ((CODE)1 << (CODE_BITS - 1))

// A number that is smaller the earlier the element x[at] ranks; equal for equal elements.
static inline CODE rank_code(global const REAL *x, size_t at) {
    const ACC value = LOAD(x, at);
#if defined(ACC_IS_FLOAT)
    CODE bits = isnan(value) ? NAN_BITS : AS_CODE(value);
    if (bits == SIGN) bits = 0;  // -0 equals 0
    const CODE ascending = bits & SIGN ? ~bits : bits | SIGN;
#elif STORAGE == 5 || STORAGE == 6
    const CODE ascending = value;
#else
    const CODE ascending = (CODE)value ^ SIGN;
#endif
    return LARGEST ? ~ascending : ascending;
}

// Whether element a with code ca ranks before element b with code cb.
static inline int ranks_before(CODE ca, int a, CODE cb, int b) { return ca < cb || (ca == cb && a < b); }

#if WORST_ON_TOP
#define ABOVE(ca, a, cb, b) ranks_before(cb, b, ca, a)
#else
#define ABOVE(ca, a, cb, b) ranks_before(ca, a, cb, b)
#endif

// Move heap[hole] down to its place among the first `size`; `line` holds the elements, `stride` apart.
static inline void sift_down(global int *heap, int hole, int size, global const REAL *line, int stride) {
    const int moved = heap[hole];
    const CODE code = rank_code(line, (size_t)moved * stride);
    for (int child = 2 * hole + 1; child < size; child = 2 * hole + 1) {
        int up = heap[child];
        CODE up_code = rank_code(line, (size_t)up * stride);
        if (child + 1 < size) {
            const int right = heap[child + 1];
            const CODE right_code = rank_code(line, (size_t)right * stride);
            if (ABOVE(right_code, right, up_code, up)) {
                ++child;
                up = right;
                up_code = right_code;
            }
        }
        if (!ABOVE(up_code, up, code, moved)) break;
        heap[hole] = up;
        hole = child;
    }
    heap[hole] = moved;
}
