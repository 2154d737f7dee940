// After reduce/work_group_rows.cl on NVIDIA's GPUs: whole warps fold what they hold by shuffles, through inline PTX, as sub-groups do
// elsewhere (reduce/sub_group_fold.cl, which follows where FOLDS_BY_WARPS is 1). Processors, which test it, meet in local memory.
#if WG % 32 == 0 && ROWS == 1 && defined(ACC_IS_FLOAT) && STORAGE != 2 && !defined(ACC_HALF) // floats
#define FOLDS_BY_WARPS 1
#define SUB_GROUP ((int)get_local_id(0) / 32)
#define SUB_GROUPS (WG / 32)
#define SUB_ITEM ((int)get_local_id(0) % 32)
#define SUB_FOLD(name, v, part) CAT(warp_, name)(v, part)
#define JOIN_SUMS(a, b) ((a) + (b))
#define JOIN_TOPS(a, b) fmax(a, b)
#if defined(__x86_64__) || defined(__aarch64__)
#define WARP_FOLD(type, join) \
    barrier(CLK_LOCAL_MEM_FENCE); \
    part[get_local_id(0)] = v; \
    barrier(CLK_LOCAL_MEM_FENCE); \
    v = part[SUB_GROUP * 32]; \
    for (int i = 1; i < 32; ++i) v = join(v, part[SUB_GROUP * 32 + i]); \
    return v;
#else
static inline float __attribute__((overloadable)) swapped(float v, int distance) {
    float other;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;" : "=f"(other) : "f"(v), "r"(distance));
    return other;
}
#if PACK > 1
static inline ACCV __attribute__((overloadable)) swapped(ACCV v, int distance) {
    #pragma unroll
    for (int k = 0; k < PACK; ++k) ((float *)&v)[k] = swapped(((float *)&v)[k], distance);
    return v;
}
#endif
#define WARP_FOLD(type, join) \
    _Pragma("unroll") \
    for (int d = 16; d > 0; d /= 2) { \
        const type other = swapped(v, d); \
        v = join(v, other); \
    } \
    return v;
#endif
static inline ACC __attribute__((overloadable)) warp_sums(ACC v, local ACC *part) { WARP_FOLD(ACC, JOIN_SUMS) }
static inline ACC __attribute__((overloadable)) warp_tops(ACC v, local ACC *part) { WARP_FOLD(ACC, JOIN_TOPS) }
#if PACK > 1
static inline ACCV __attribute__((overloadable)) warp_sums(ACCV v, local ACCV *part) { WARP_FOLD(ACCV, JOIN_SUMS) }
static inline ACCV __attribute__((overloadable)) warp_tops(ACCV v, local ACCV *part) { WARP_FOLD(ACCV, JOIN_TOPS) }
#endif
#endif
