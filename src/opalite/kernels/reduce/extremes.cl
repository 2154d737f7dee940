// The least and the largest element of a tensor of floats: work-groups of WG work-items take its vectors of four in turn;
// with several work-groups each leaves its pair in `pairs` (ALONE 0), and a second launch of one group joins those (JOIN 1).
//   SOURCE     0 a row-major buffer, 1 one in blocks of four channels, 2 an image
//   HALVES     whether x holds halves
//   vectors    number of vectors; last: elements of the last vector (SOURCE 0)
//   channels, blocks, width: of the tensor; a block of channels has `width` vectors in a row (SOURCE 1, 2)
// Grid: WG * PARTS.
#ifndef WG
#define WG 64
#endif
#ifndef SOURCE
#define SOURCE 0
#endif
#ifndef HALVES
#define HALVES 0
#endif
#ifndef JOIN
#define JOIN 0
#endif
#define LEAST(a, b) select(a, b, ((b) < (a)) | isnan(b))
#define LARGEST(a, b) select(a, b, ((b) > (a)) | isnan(b))
#if HALVES
#define FOUR(i) vload_half4(i, x)
#define ONE(i) vload_half(i, x)
#define ELEMENT half
#else
#define FOUR(i) vload4(i, x)
#define ONE(i) x[i]
#define ELEMENT float
#endif

// Lanes that hold no element repeat the first of the vector.
static inline float4 with_lanes(float4 v, int count) {
    return (float4)(v.x, count > 1 ? v.y : v.x, count > 2 ? v.z : v.x, count > 3 ? v.w : v.x);
}

#if SOURCE == 2
#define X_PARAM read_only image2d_t x
#else
#define X_PARAM global const ELEMENT *x
#endif

#if SOURCE == 0
static inline float4 read_vector(X_PARAM, int i, int vectors, int last) {
    if (i < vectors - 1 || last == 4) return FOUR(i);
    return (float4)(ONE(4 * i), last > 1 ? ONE(4 * i + 1) : ONE(4 * i), last > 2 ? ONE(4 * i + 2) : ONE(4 * i), ONE(4 * i));
}
#endif

// The pair of a work-group, in its first work-item.
#if WG == 1
#define LOCAL_PAIRS
#define JOIN_GROUP(pair)
#else
#define LOCAL_PAIRS local float2 held[WG]
#define JOIN_GROUP(pair)                                                          \
    do {                                                                          \
        const int at_ = get_local_id(0);                                          \
        held[at_] = pair;                                                         \
        for (int step_ = WG / 2; step_ > 0; step_ /= 2) {                         \
            barrier(CLK_LOCAL_MEM_FENCE);                                         \
            if (at_ < step_) {                                                    \
                const float2 a_ = held[at_], b_ = held[at_ + step_];              \
                held[at_] = (float2)(LEAST(a_.x, b_.x), LARGEST(a_.y, b_.y));     \
            }                                                                     \
        }                                                                         \
        pair = held[at_];                                                         \
    } while (0)
#endif

#if JOIN
kernel __attribute__((reqd_work_group_size(WG, 1, 1)))
void join_extremes(global const float *pairs, global REAL *least, global REAL *largest, int parts) {
    LOCAL_PAIRS;
    float2 pair = (float2)(INFINITY, -INFINITY);
    for (int i = get_local_id(0); i < parts; i += WG) {
        const float2 v = vload2(i, pairs);
        pair = (float2)(LEAST(pair.x, v.x), LARGEST(pair.y, v.y));
    }
    JOIN_GROUP(pair);
    if (get_local_id(0) > 0) return;
    STORE(least, 0, pair.x);
    STORE(largest, 0, pair.y);
}
#else
#if ALONE
#define RESULTS global REAL *least, global REAL *largest
#else
#define RESULTS global float *pairs
#endif
kernel __attribute__((reqd_work_group_size(WG, 1, 1)))
void extremes(X_PARAM, RESULTS, int vectors, int last, int channels, int blocks, int width) {
    LOCAL_PAIRS;
    float4 low = (float4)(INFINITY), high = (float4)(-INFINITY);
    for (int i = get_global_id(0); i < vectors; i += get_global_size(0)) {
#if SOURCE == 0
        const float4 v = read_vector(x, i, vectors, last);
#elif SOURCE == 1
        const float4 v = with_lanes(FOUR(i), channels - i / width % blocks * 4);
#else
        const int row = i / (blocks * width), column = i - row * (blocks * width);
        const float4 v = with_lanes(READ(x, column, row), channels - column / width * 4);
#endif
        low = LEAST(low, v);
        high = LARGEST(high, v);
    }
    const float2 a = (float2)(LEAST(low.x, low.y), LEAST(low.z, low.w));
    const float2 b = (float2)(LARGEST(high.x, high.y), LARGEST(high.z, high.w));
    float2 pair = (float2)(LEAST(a.x, a.y), LARGEST(b.x, b.y));
    JOIN_GROUP(pair);
    if (get_local_id(0) > 0) return;
#if ALONE
    STORE(least, 0, pair.x);
    STORE(largest, 0, pair.y);
#else
    vstore2(pair, get_group_id(0), pairs);
#endif
}
#endif
