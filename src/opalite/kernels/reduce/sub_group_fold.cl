// After reduce/work_group_rows.cl where the device has sub-groups: FOLD_ROW of sums and maxima of floats takes one barrier less for
// each halving: sub-groups fold what their own work-items hold, and the work-group what those give. Needs ROWS 1, so that all
// work-items of a sub-group, however many the device gives it, share a row; other rows and other f fold as before.
//   SUB_FOLD(name, v, part)   v, a scalar or a vector, folded over the sub-group; name: sums or tops (max is a macro at times)
#ifdef cl_khr_subgroups
#pragma OPENCL EXTENSION cl_khr_subgroups : enable
#endif
#if WG > 1 && ROWS == 1 && ACC_IS_FLOAT
#define FOLD_TREE(f, v, part)                                             \
    do {                                                                  \
        const int at_ = get_local_id(0);                                  \
        barrier(CLK_LOCAL_MEM_FENCE);                                     \
        part[at_] = (v);                                                  \
        for (int step_ = WG / 2; step_ > 0; step_ /= 2) {                 \
            barrier(CLK_LOCAL_MEM_FENCE);                                 \
            if (at_ < step_) part[at_] = f(part[at_], part[at_ + step_]); \
        }                                                                 \
        barrier(CLK_LOCAL_MEM_FENCE);                                     \
        (v) = part[0];                                                    \
    } while (0)
#ifndef SUB_FOLD
#define SUB_GROUP (int)get_sub_group_id()
#define SUB_GROUPS (int)get_num_sub_groups()
#define SUB_ITEM (int)get_sub_group_local_id()
#define SUB_FOLD(name, v, part) CAT(sub_, name)(v)
#define DEFINE_SUB_FOLDS(name, reduce) \
    static inline ACC __attribute__((overloadable)) CAT(sub_, name)(ACC v) { return reduce(v); } \
    DEFINE_SUB_FOLD_V(name, reduce)
#if PACK > 1
#define DEFINE_SUB_FOLD_V(name, reduce) \
    static inline ACCV __attribute__((overloadable)) CAT(sub_, name)(ACCV v) { \
        for (int k = 0; k < PACK; ++k) ((ACC *)&v)[k] = reduce(((ACC *)&v)[k]); \
        return v; \
    }
#else
#define DEFINE_SUB_FOLD_V(name, reduce)
#endif
DEFINE_SUB_FOLDS(sums, sub_group_reduce_add)
DEFINE_SUB_FOLDS(tops, sub_group_reduce_max)
#endif
#define FOLD_SUB_GROUPS(f, name, v, part)                                 \
    do {                                                                  \
        (v) = SUB_FOLD(name, v, part);                                     \
        barrier(CLK_LOCAL_MEM_FENCE);                                     \
        if (SUB_ITEM == 0) part[SUB_GROUP] = (v);                         \
        barrier(CLK_LOCAL_MEM_FENCE);                                     \
        (v) = part[0];                                                    \
        for (int s_ = 1; s_ < SUB_GROUPS; ++s_) (v) = f(v, part[s_]);     \
    } while (0)
#undef FOLD_ROW
#define FOLD_ROW(f, v, part) FOLD_BY_##f(v, part)
#define FOLD_BY_ADD2(v, part) FOLD_SUB_GROUPS(ADD2, sums, v, part)
#define FOLD_BY_LANES_ADD(v, part) FOLD_SUB_GROUPS(LANES_ADD, sums, v, part)
#define FOLD_BY_MAX2(v, part) FOLD_SUB_GROUPS(MAX2, tops, v, part)
// Reductions (reduce/reduction_kinds.cl): all that add up.
#if defined(KIND) && (KIND < 2 || (KIND >= 5 && KIND <= 8))
#define FOLD_BY_JOIN(v, part) FOLD_SUB_GROUPS(LANES_ADD, sums, v, part)
#else
#define FOLD_BY_JOIN(v, part) FOLD_TREE(JOIN, v, part)
#endif
#endif
