// NVIDIA Hopper's matrix and copy instructions for a warpgroup of four warps, through inline PTX. ptxas
// rejects some of them in OpenCL C: these are comments that begin with //hopper, which ptx/retarget_sm90a.py makes a part of
// the program, with SHARED bytes of local memory, more than OpenCL allows. CPUs have no such units: there work-items exchange
// operands in local memory and compute the same sums, so that kernels can be tested (every work-item of the group must then execute it).
// A kernel of GROUP work-items begins with ROOM; places in local memory are numbers, of which ROOM_AT is the first.
//   MULTIPLY(d, quads, place)          d += 16 terms of two positions (uint2 quads[2]) by BN channels: wgmma.m64nNk16; place:
//                                      that of the weights in 16 bytes, with two strides; begins, and ends by DRAIN
//   READY, COMMIT, DRAIN(n)            before MULTIPLY; after it; until all but the last n have ended
//   BULK_COPY(to, from, n, at)         n bytes from global to local memory by one work-item, for which barrier `at` waits
//   MEET_INIT(at, n), MEET_READY       barriers of n arrivals, by one work-item; after the last of them
//   MEET_EXPECT(at, n), MEET_ARRIVE    an arrival with n bytes to come, and one without
//   ARRIVED(at, parity)                all work-items wait for bytes; MEET_WAIT: one waits for the others' arrivals
//   COPY_8, COPY_16(to, from, exists)  from global to local memory of this work-item or its warp, zeros unless `exists`
//   COPY_DONE, COPY_WAIT(n)            as in mma/mma_instructions.cl
//   MEET_WARP                          after COPY_WAIT: until all lanes of the warp arrive
//   READ(v, at)                        uint2 v from a place in local memory
//   FLOATS(v), ALL_FOUR(v)             the two halves of a uint as float2; the sum of float v over four adjacent lanes
//   ZERO                               0 for sums to begin with
#if defined(__x86_64__) || defined(__aarch64__)
#define MOST_COPIES (4 * SEATS + 4)
typedef struct {
    local uchar *room;
    local uint *seats;  // [work-items][4], for exchange between lanes
    uint to[MOST_COPIES];
    global const uchar *from[MOST_COPIES];
    int bytes[MOST_COPIES], group[MOST_COPIES], exists[MOST_COPIES], held, groups;
} Units;

static inline void units_multiply(Units *u, float *d, const uint2 *quads, ulong place) {
    local uint *mine = u->seats + get_local_id(0) * 4;
    mine[0] = quads[0].x, mine[1] = quads[0].y, mine[2] = quads[1].x, mine[3] = quads[1].y;
    barrier(CLK_LOCAL_MEM_FENCE);
    local const uchar *weights = u->room + ((place & 0x3fff) << 4);
    const int across = (int)(place >> 16 & 0x3fff) << 4, down = (int)(place >> 32 & 0x3fff) << 4;
    for (int i = 0; i < BN / 2; ++i) {
        const int column = i / 4 * 8 + LANE % 4 * 2 + i % 2, half_ = i / 2 % 2;
        for (int k = 0; k < 16; ++k) {
            const int owner = (int)get_local_id(0) / 32 * 32 + LANE / 4 * 4 + k % 8 / 2;
            local const half *b = (local const half *)(weights + column / 8 * down + k / 8 * across + column % 8 * 16);
            d[i] += vload_half(k % 2, (local const half *)(u->seats + owner * 4 + half_ * 2 + k / 8)) * vload_half(k % 8, b);
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

static inline void units_copy(Units *u, int bytes, uint to, global const void *from, bool exists) {
    const int i = u->held++;
    u->to[i] = to, u->from[i] = (global const uchar *)from;
    u->bytes[i] = bytes, u->exists[i] = exists, u->group[i] = u->groups;
}

// Copies are delayed until COPY_WAIT, so that a missing wait reads old data and tests fail.
static inline void units_wait(Units *u, int left) {
    int kept = 0;
    for (int i = 0; i < u->held; ++i) {
        if (u->group[i] < u->groups - left) {
            for (int k = 0; k < u->bytes[i]; ++k) u->room[u->to[i] + k] = u->exists[i] ? u->from[i][k] : (uchar)0;
        } else {
            u->to[kept] = u->to[i], u->from[kept] = u->from[i], u->bytes[kept] = u->bytes[i];
            u->exists[kept] = u->exists[i], u->group[kept] = u->group[i];
            ++kept;
        }
    }
    u->held = kept;
}

static inline void units_bulk(Units *u, uint to, global const uchar *from, int n) {
    for (int k = 0; k < n; ++k) u->room[to + k] = from[k];
}

static inline float2 units_floats(uint v) {
    return (float2)(vload_half(0, (const half *)&v), vload_half(1, (const half *)&v));
}

static inline float units_all_four(Units *u, float v) {
    local uint *seats = u->seats + get_local_id(0) / 4 * 16;
    u->seats[get_local_id(0) * 4] = as_uint(v);
    barrier(CLK_LOCAL_MEM_FENCE);
    const float all = as_float(seats[0]) + as_float(seats[4]) + (as_float(seats[8]) + as_float(seats[12]));
    barrier(CLK_LOCAL_MEM_FENCE);
    return all;
}
// PoCL 3.0 may share an array initialised by constants between work-items.
#define ZERO ((float)(get_local_id(0) >> 30))
#define ROOM \
    local ulong room[SHARED / 8]; \
    local ulong unit_seats[2 * GROUP]; \
    Units units; \
    units.room = (local uchar *)room, units.seats = (local uint *)unit_seats, units.held = 0, units.groups = 0
#define ROOM_AT 0
#define MULTIPLY(d, quads, place) units_multiply(&units, d, quads, place)
#define READY
#define COMMIT
#define DRAIN(n)
#define BULK_COPY(to, from, n, at) units_bulk(&units, to, from, n)
#define MEET_INIT(at, n)
#define MEET_READY
#define MEET_EXPECT(at, n)
#define MEET_ARRIVE(at)
#define ARRIVED(at, parity) barrier(CLK_LOCAL_MEM_FENCE)
#define MEET_WAIT(at, parity)
#define COPY_8(to, from, exists) units_copy(&units, 8, to, from, exists)
#define COPY_16(to, from, exists) units_copy(&units, 16, to, from, exists)
#define COPY_DONE ++units.groups
#define COPY_WAIT(n) units_wait(&units, n)
#define MEET_WARP barrier(CLK_LOCAL_MEM_FENCE)
#define READ(v, at) v = *(local const uint2 *)(units.room + (at))
#define FLOATS(v) units_floats(v)
#define ALL_FOUR(v) units_all_four(&units, v)
#else
#define ZERO 0.0f
#define ROOM \
    local uint4 room[STAGES] __attribute__((aligned(1024))); \
    asm volatile("//hopper-local room " TEXT(SHARED))
#define ROOM_AT ((uint)(size_t)room)
#define ARRIVED(at, parity) MEET_WAIT(at, parity)
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define HOPPER(text) asm volatile("//hopper " text ::: "memory")

// Of SUMS sums, a multiple of 8: what the text calls them, and the operands that they are.
#define NAMES_8 "%0,%1,%2,%3,%4,%5,%6,%7"
#define NAMES_16 NAMES_8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define NAMES_24 NAMES_16 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define NAMES_32 NAMES_24 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define NAMES_40 NAMES_32 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define NAMES_48 NAMES_40 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define NAMES_56 NAMES_48 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define NAMES_64 NAMES_56 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define NAMES_72 NAMES_64 ",%64,%65,%66,%67,%68,%69,%70,%71"
#define NAMES_80 NAMES_72 ",%72,%73,%74,%75,%76,%77,%78,%79"
#define NAMES_88 NAMES_80 ",%80,%81,%82,%83,%84,%85,%86,%87"
#define NAMES_96 NAMES_88 ",%88,%89,%90,%91,%92,%93,%94,%95"
#define NAMES_104 NAMES_96 ",%96,%97,%98,%99,%100,%101,%102,%103"
#define NAMES_112 NAMES_104 ",%104,%105,%106,%107,%108,%109,%110,%111"
#define NAMES_120 NAMES_112 ",%112,%113,%114,%115,%116,%117,%118,%119"
#define NAMES_128 NAMES_120 ",%120,%121,%122,%123,%124,%125,%126,%127"
#define HOLD_4(d, i) "+f"((d)[i]), "+f"((d)[i + 1]), "+f"((d)[i + 2]), "+f"((d)[i + 3])
#define HOLD_8(d) HOLD_4(d, 0), HOLD_4(d, 4)
#define HOLD_16(d) HOLD_8(d), HOLD_4(d, 8), HOLD_4(d, 12)
#define HOLD_24(d) HOLD_16(d), HOLD_4(d, 16), HOLD_4(d, 20)
#define HOLD_32(d) HOLD_24(d), HOLD_4(d, 24), HOLD_4(d, 28)
#define HOLD_40(d) HOLD_32(d), HOLD_4(d, 32), HOLD_4(d, 36)
#define HOLD_48(d) HOLD_40(d), HOLD_4(d, 40), HOLD_4(d, 44)
#define HOLD_56(d) HOLD_48(d), HOLD_4(d, 48), HOLD_4(d, 52)
#define HOLD_64(d) HOLD_56(d), HOLD_4(d, 56), HOLD_4(d, 60)
#define HOLD_72(d) HOLD_64(d), HOLD_4(d, 64), HOLD_4(d, 68)
#define HOLD_80(d) HOLD_72(d), HOLD_4(d, 72), HOLD_4(d, 76)
#define HOLD_88(d) HOLD_80(d), HOLD_4(d, 80), HOLD_4(d, 84)
#define HOLD_96(d) HOLD_88(d), HOLD_4(d, 88), HOLD_4(d, 92)
#define HOLD_104(d) HOLD_96(d), HOLD_4(d, 96), HOLD_4(d, 100)
#define HOLD_112(d) HOLD_104(d), HOLD_4(d, 104), HOLD_4(d, 108)
#define HOLD_120(d) HOLD_112(d), HOLD_4(d, 112), HOLD_4(d, 116)
#define HOLD_128(d) HOLD_120(d), HOLD_4(d, 120), HOLD_4(d, 124)
#define JOINED_(a, b) a##b
#define JOINED(a, b) JOINED_(a, b)
#define NAMES JOINED(NAMES_, SUMS)
#define HOLD(d) JOINED(HOLD_, SUMS)(d)
#define MULTIPLY(d, quads, place) \
    asm volatile("//hopper wgmma.mma_async.sync.aligned.m64n" TEXT(BN) "k16.f32.f16.f16 {" NAMES "}, " \
                 "{%[a0],%[a1],%[a2],%[a3]}, %[b], 1, 1, 1, 0;" : HOLD(d) \
                 : [a0] "r"((quads)[0].x), [a1] "r"((quads)[1].x), [a2] "r"((quads)[0].y), [a3] "r"((quads)[1].y), [b] "l"(place))
#define READY HOPPER("wgmma.fence.sync.aligned;")
#define COMMIT HOPPER("wgmma.commit_group.sync.aligned;")
#define DRAIN(n) HOPPER("wgmma.wait_group.sync.aligned " #n ";")

#define MEET_INIT(at, n) asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(at), "r"(n) : "memory")
#define MEET_EXPECT(at, n) asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(at), "r"(n) : "memory")
#define MEET_ARRIVE(at) asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(at) : "memory")
#define MEET_READY asm volatile("fence.proxy.async.shared::cta;" ::: "memory")
#define MEET_WAIT(at, parity) \
    asm volatile("{\n.reg .pred met;\nLOOK:\nmbarrier.try_wait.parity.shared.b64 met, [%0], %1;\n@!met bra LOOK;\n}" \
                 :: "r"(at), "r"(parity) : "memory")
#define BULK_COPY(to, from, n, at) \
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" \
                 :: "r"(to), "l"((ulong)(size_t)(from)), "r"(n), "r"(at) : "memory")
#define COPY_8(to, from, exists) \
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" \
                 :: "r"(to), "l"((ulong)(size_t)(from)), "r"((exists) ? 8 : 0) : "memory")
#define COPY_16(to, from, exists) \
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" \
                 :: "r"(to), "l"((ulong)(size_t)(from)), "r"((exists) ? 16 : 0) : "memory")
#define COPY_DONE asm volatile("cp.async.commit_group;" ::: "memory")
#define COPY_WAIT_(n) asm volatile("cp.async.wait_group " #n ";" ::: "memory")
#define COPY_WAIT(n) COPY_WAIT_(n)
#define MEET_WARP asm volatile("bar.warp.sync 0xffffffff;" ::: "memory")
#define READ(v, at) asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"((v).x), "=r"((v).y) : "r"(at) : "memory")
static inline float2 units_floats(uint v) {
    float low, high;
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\ncvt.f32.f16 %0, low;\ncvt.f32.f16 %1, high;\n}"
        : "=f"(low), "=f"(high) : "r"(v));
    return (float2)(low, high);
}
static inline float units_all_four(float v) {
    float other;
    asm volatile("shfl.sync.bfly.b32 %0, %1, 1, 31, 0xffffffff;" : "=f"(other) : "f"(v));
    v += other;
    asm volatile("shfl.sync.bfly.b32 %0, %1, 2, 31, 0xffffffff;" : "=f"(other) : "f"(v));
    return v + other;
}
#define FLOATS(v) units_floats(v)
#define ALL_FOUR(v) units_all_four(v)
#endif
