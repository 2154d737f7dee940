// Copies loop-carried and collected values after an iteration. Returns whether another iteration follows.
static bool goes_on(global ulong *call) {
    const bool more = ++call[ITERATIONS_DONE] < call[MAX_ITERATIONS]
        && (!call[CONDITION] || *(global const uchar *)call[CONDITION]);
    global ulong *m = (global ulong *)call[COPIES];
    for (ulong k = 0; k < call[COPY_COUNT]; ++k, m += HOST_COPY) {
        if (m[WHEN] && !more) break;
        global uchar *to = (global uchar *)m[TO];
        global const uchar *from = (global const uchar *)m[FROM];
        const ulong bytes = m[BYTES];
        for (ulong i = 0; i < bytes / 16; ++i) vstore16(vload16(i, from), i, to);
        for (ulong i = bytes / 16 * 16; i < bytes; ++i) to[i] = from[i];
        m[TO] += m[TO_STEP];
        m[FROM] += m[FROM_STEP];
    }
    return more;
}
// Executes all steps where no worker is.
static void walk_alone(global const ulong *table) {
    global const uint *s = (global const uint *)table[SHAPES];
    for (ulong i = 0; i < table[STEPS]; ++i, s += SHAPE) compute_groups((global const ulong *)table[ARGS], s, 0, s[2]);
}
static void take_part(global ulong *call, bool leads, uint me) {
    global uint *control = (global uint *)call[WORDS];
    uint asked, served;
    if (leads) {
        served = __atomic_fetch_add(control + ASKED, 1, __ATOMIC_SEQ_CST);
    } else {
        served = __atomic_load_n(control + ASKED, __ATOMIC_ACQUIRE) - 1;
    }
    for (;;) {
        asked = __atomic_load_n(control + ASKED, __ATOMIC_ACQUIRE);
        if (asked != served) {
            // Where nobody may be reading, the host writes tables anew that are not the present one.
            if (!leads) __atomic_fetch_add(control + INSIDE, 1, __ATOMIC_SEQ_CST);
            global ulong *table = (global ulong *)__atomic_load_n(call + TABLE, __ATOMIC_SEQ_CST);
            const uint turn = (uint)__atomic_load_n(table + TURN, __ATOMIC_ACQUIRE);
            walk_steps((global const ulong *)table[ARGS], (global const uint *)table[SHAPES],
                       (global uint *)table[COUNTERS], 0, (uint)table[STEPS], me, (uint)call[WORKERS], turn);
            if (leads) {
                if (!goes_on(call)) break;
                __atomic_store_n(table + TURN, (ulong)(uint)(turn + 1), __ATOMIC_RELEASE);
                __atomic_fetch_add(control + ASKED, 1, __ATOMIC_SEQ_CST);
                continue;  // as another run, which others may take part in
            }
            __atomic_fetch_sub(control + INSIDE, 1, __ATOMIC_SEQ_CST);
            served = asked;
        }
        const ulong stay = (ulong)__atomic_load_n(control + STAY, __ATOMIC_RELAXED) * TICKS;
        const ulong since = __builtin_ia32_rdtsc();
        while (__atomic_load_n(control + ASKED, __ATOMIC_RELAXED) == served &&
               !__atomic_load_n(control + LEAVE, __ATOMIC_RELAXED) && __builtin_ia32_rdtsc() - since < stay)
            RELAX();
        if (__atomic_load_n(control + ASKED, __ATOMIC_ACQUIRE) == served) break;
        if (__atomic_load_n(control + LEAVE, __ATOMIC_RELAXED)) break;  // nobody waits for this one
    }
    if (!leads) __atomic_fetch_add(control + LEFT, 1, __ATOMIC_SEQ_CST);
}
// A run, by the host. Numbers that are not normal are treated as workers treat them.
void lead_run(global ulong *call) {
    const uint mode = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr((uint)call[MODE]);
    call[ITERATIONS_DONE] = 0;
    if (call[WORKERS]) {
        take_part(call, true, 0);
    } else {
        do walk_alone((global const ulong *)call[TABLE]);
        while (goes_on(call));
    }
    __builtin_ia32_ldmxcsr(mode);
}
// A worker for each core is launched, though the host has one of these: a thread that wakes up on the host's core goes
// first there, and would take the work from one that wakes up on an idle core. It waits a while for that, and leaves.
static bool is_spare(global ulong *call, uint workers) {
    global uint *control = (global uint *)call[WORDS];
    const bool is_last = __atomic_add_fetch(control + CAME, 1, __ATOMIC_SEQ_CST) == workers;
    uint at = ~0u;
    system_call(309, (long)&at, 0, 0); /* getcpu */
    if ((!is_last && at != call[CORE]) || __atomic_exchange_n(control + SPARE, 1u, __ATOMIC_SEQ_CST)) return false;
    const long time[2] = {0, 20000};
    for (uint i = 0; i < 16 && __atomic_load_n(control + CAME, __ATOMIC_ACQUIRE) < workers; ++i) SLEEP(time);
    __atomic_fetch_add(control + LEFT, 1, __ATOMIC_SEQ_CST);
    return true;
}
// OpenCL C has no pointers to functions, but a variable may bear the function's symbol. PoCL keeps only functions that
// the kernel calls.
extern constant uchar code[] __asm__("lead_run");
kernel void serve_steps(global ulong *call, uint tells) {
    if (tells) {
        call[CODE] = (ulong)code;
        call[MODE] = __builtin_ia32_stmxcsr();
        call[CLOCK] = __builtin_ia32_rdtsc();
        if (tells > 1) lead_run(call);  // it never is
    } else if (!is_spare(call, get_num_groups(0))) {
        take_part(call, false, get_group_id(0) + 1);
    }
}
