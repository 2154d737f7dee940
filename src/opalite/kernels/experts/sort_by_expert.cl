// Sorts slots by their selected expert: expert e has order[starts[e]] to before order[starts[e + 1]].
// Grid: experts.
#ifndef INDEX
#define INDEX long
#endif

static inline int expert_of(INDEX pick, int experts) {
    return (int)clamp(pick < 0 ? pick + experts : pick, (INDEX)0, (INDEX)(experts - 1));
}

kernel void order_slots(global const INDEX *restrict picks, global int *restrict starts, global int *restrict order, int count,
                        int experts) {
    const int e = get_global_id(0);
    if (e >= experts) return;
    int at = 0;
    for (int i = 0; i < count; ++i) at += expert_of(picks[i], experts) < e;
    starts[e] = at;
    for (int i = 0; i < count; ++i)
        if (expert_of(picks[i], experts) == e) order[at++] = i;
    if (e == experts - 1) starts[experts] = count;
}
