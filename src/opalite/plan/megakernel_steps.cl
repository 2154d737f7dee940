#if defined(__x86_64__) || defined(__i386__)
#define RELAX() __builtin_ia32_pause()
#else
#define RELAX()
#endif
#if defined(__x86_64__) && defined(__linux__)
__attribute__((noinline)) static void system_call(long number, long a, long b, long c) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "0"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
}
#define SLEEP(time) system_call(35, (long)(time), 0, 0) /* nanosleep */
#else
#define SLEEP(time) RELAX()
#endif
// Where another process takes a core away, whoever waits for it should not keep the other cores busy: a worker that has
// waited long sleeps for moments, and the system can move the worker that holds the work.
static inline void wait_turn(bool is_long) {
    if (is_long) {
        const long time[2] = {0, 20000};
        SLEEP(time);
    } else {
        RELAX();
    }
}

// Computes work-groups [first, last) of the step with row `s`.
static inline void compute_groups(global const ulong *args, global const uint *s, uint first, uint last) {
    switch (s[0]) {
        CASES
    }
}
// Takes work-groups of part `r` of a step and computes them, until none is left; returns how many. `sharers` workers
// begin with that part, or one who has all to itself.
static inline uint take_groups(global const ulong *args, global const uint *s, global uint *taken, uint r, uint sharers,
                               uint turn) {
    const uint first = (ulong)s[2] * r / RANGES, size = (ulong)s[2] * (r + 1) / RANGES - first, start = turn * size;
    uint before = __atomic_load_n(taken, __ATOMIC_RELAXED), mine = 0;
    while (before - start < size) {
        const uint left = size - (before - start), share = sharers > 0 ? max(1u, left / (2 * sharers)) : left;
        if (!__atomic_compare_exchange_n(taken, &before, before + share, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            continue;
        compute_groups(args, s, first + before - start, first + before - start + share);
        mine += share;
        before = __atomic_load_n(taken, __ATOMIC_RELAXED);
    }
    return mine;
}
static void walk_steps(global const ulong *args, global const uint *shapes, global uint *counters, uint first,
                       uint last, uint me, uint workers, uint turn) {
    const uint total = shapes[(last - 1) * SHAPE + 2], sharers = workers > 1 ? (workers + RANGES - 1) / RANGES : 0;
    if (__atomic_load_n(counters + (last - 1) * ROW, __ATOMIC_ACQUIRE) - turn * total >= total) return;
    uint patience = SPINS;
    for (uint i = first; i < last; ++i) {
        global const uint *s = shapes + i * SHAPE;
        global uint *done = counters + i * ROW;
        const uint all = s[2], start = turn * all;
        uint mine = 0;
        for (uint k = me; k < me + RANGES; ++k)
            mine += take_groups(args, s, done + LINE * (1 + k % RANGES), k % RANGES, sharers, turn);
        if (mine > 0) __atomic_fetch_add(done, mine, __ATOMIC_ACQ_REL);
        uint turns = 0;
        for (; __atomic_load_n(done, __ATOMIC_ACQUIRE) - start < all; ++turns) wait_turn(turns >= patience);
        // Who had to sleep expects to have to again: on a busy machine most waits are long.
        patience = turns > patience ? max(patience / 4, LEAST_SPINS) : min(patience + patience / 4, SPINS);
    }
}
