// NVIDIA's matrix and copy instructions through inline PTX, for a warp of 32 lanes. CPUs have no
// such units: there work-items exchange operands in local memory and compute the same sums, so that kernels can be tested (every work-item
// of the group must then execute it). A kernel of GROUP work-items begins with UNITS; functions take UNITS_PARAM, given units_.
//   MULTIPLY(d, a0, a1, a2, a3, b0, b1)   d[4] += a b, mma.m16n8k16: halves in pairs (uint), float sums
//   TURNED(r, p)                          r[4]: four 8 x 8 matrices of halves, transposed (ldmatrix.trans); lane 8 * m + i
//                                         gives in p the row i of matrix m, 16 bytes of local memory
//   TAKEN(r, p)                           the same, not transposed (ldmatrix)
//   POWER(x)                              2 to the power of float x
//   COPY(bytes, to, from, exists)         2, 4, 8 or 16 bytes from global to local memory, zeros unless `exists`
//   COPY_DONE                             closes a group of copies
//   SWAPPED(v, d)                         float v of lane ^ d
//   HALVES(low, high)                     two floats as halves in a uint
//   pair_floats(v)                        the inverse, as a float2
//   FUSED(a, b, c)                        a b + c of pairs of halves (uint), rounded once
//   SOME_WARPS(condition)                 before a block that warps without the condition may skip
//   ZERO                                  0 for sums to begin with
//   UNROLLED                              before a loop whose body uses these
//   COPY_WAIT(n)                          until all groups of this work-item but the last n, a number, have arrived
#define LANE ((int)get_local_id(0) & 31)
#define WARP ((int)get_local_id(0) >> 5)
#if defined(__x86_64__) || defined(__aarch64__)
#ifndef MOST_COPIES
#define MOST_COPIES 64
#endif
typedef struct {
    local uint *seats;  // [work-items][8], for exchange between lanes
    local uchar *to[MOST_COPIES];
    global const uchar *from[MOST_COPIES];
    int bytes[MOST_COPIES], group[MOST_COPIES], exists[MOST_COPIES], held, groups;
} Units;

static inline float half_of(local const uint *seats, int item, int i, int high) {
    return vload_half((item * 8 + i) * 2 + high, (local const half *)seats);
}

static inline void units_multiply(Units *u, float *d, uint a0, uint a1, uint a2, uint a3, uint b0, uint b1) {
    local uint *mine = u->seats + get_local_id(0) * 8;
    mine[0] = a0, mine[1] = a1, mine[2] = a2, mine[3] = a3, mine[4] = b0, mine[5] = b1;
    barrier(CLK_LOCAL_MEM_FENCE);
    const int first = WARP * 32, row = LANE / 4, column = LANE % 4 * 2;
    for (int i = 0; i < 4; ++i) {
        for (int k = 0; k < 16; ++k) {
            const int a = first + row * 4 + k % 8 / 2, b = first + (column + i % 2) * 4 + k % 8 / 2;
            d[i] += half_of(u->seats, a, i / 2 + k / 8 * 2, k % 2) * half_of(u->seats, b, 4 + k / 8, k % 2);
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

static inline void units_matrices(Units *u, uint *r, local const void *row, bool turned) {
    local ulong *mine = (local ulong *)(u->seats + get_local_id(0) * 8);
    mine[0] = (ulong)row;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int m = 0; m < 4; ++m) {
        uint pair = 0;
        for (int i = 0; i < 2; ++i) {
            const int down = LANE % 4 * 2 + i, across = LANE / 4, at = WARP * 32 + m * 8 + (turned ? down : across);
            local const ushort *p = (local const ushort *)*(local ulong *)(u->seats + at * 8);
            pair |= (uint)p[turned ? across : down] << (16 * i);
        }
        r[m] = pair;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

static inline float units_swapped(Units *u, float v, int distance) {
    u->seats[get_local_id(0) * 8] = as_uint(v);
    barrier(CLK_LOCAL_MEM_FENCE);
    const float other = as_float(u->seats[(get_local_id(0) ^ distance) * 8]);
    barrier(CLK_LOCAL_MEM_FENCE);
    return other;
}

static inline uint units_halves(Units *u, float low, float high) {
    local uint *mine = u->seats + get_local_id(0) * 8;
    vstore_half(low, 0, (local half *)mine);
    vstore_half(high, 1, (local half *)mine);
    return as_uint(vload4(0, (local const uchar *)mine)); // as uint it might be read before the halves are written
}

static inline float2 pair_floats(uint v) {
    return (float2)(vload_half(0, (const half *)&v), vload_half(1, (const half *)&v));
}

static inline uint units_fused(Units *u, uint a, uint b, uint c) {
    const float2 d = fma(pair_floats(a), pair_floats(b), pair_floats(c));
    return units_halves(u, d.x, d.y);
}

static inline void units_copy(Units *u, int bytes, local void *to, global const void *from, bool exists) {
    const int i = u->held++;
    u->to[i] = (local uchar *)to, u->from[i] = (global const uchar *)from;
    u->bytes[i] = bytes, u->exists[i] = exists, u->group[i] = u->groups;
}

// Copies are delayed until COPY_WAIT, so that a missing wait reads old data and tests fail.
static inline void units_wait(Units *u, int left) {
    int kept = 0;
    for (int i = 0; i < u->held; ++i) {
        if (u->group[i] < u->groups - left) {
            for (int k = 0; k < u->bytes[i]; ++k) u->to[i][k] = u->exists[i] ? u->from[i][k] : (uchar)0;
        } else {
            u->to[kept] = u->to[i], u->from[kept] = u->from[i], u->bytes[kept] = u->bytes[i];
            u->exists[kept] = u->exists[i], u->group[kept] = u->group[i];
            ++kept;
        }
    }
    u->held = kept;
}
// PoCL 3.0 may share an array initialised by constants between work-items.
#define ZERO ((float)(get_local_id(0) >> 30))
#define UNROLLED _Pragma("unroll 1")  // copies of code with barriers would take minutes to compile
#define UNITS \
    local ulong unit_seats[4 * GROUP]; \
    Units units, *units_ = &units; \
    units.seats = (local uint *)unit_seats, units.held = 0, units.groups = 0
#define UNITS_PARAM Units *units_
#define MULTIPLY(d, a0, a1, a2, a3, b0, b1) units_multiply(units_, d, a0, a1, a2, a3, b0, b1)
#define TURNED(r, p) units_matrices(units_, r, p, true)
#define TAKEN(r, p) units_matrices(units_, r, p, false)
#define POWER(x) native_exp2(x)
#define SWAPPED(v, d) units_swapped(units_, v, d)
#define HALVES(low, high) units_halves(units_, low, high)
#define FUSED(a, b, c) units_fused(units_, a, b, c)
#define SOME_WARPS(condition)
#define COPY(bytes, to, from, exists) units_copy(units_, bytes, to, from, exists)
#define COPY_DONE ++units_->groups
#define COPY_WAIT(n) units_wait(units_, n)
#else
#define ZERO 0.0f
#define UNROLLED _Pragma("unroll")
#define UNITS const int units_ = 0
#define UNITS_PARAM int units_
// The local memory address in the form of the instructions.
#define LOCAL_AT(p) ((uint)(size_t)(p))
#define MULTIPLY(d, a0, a1, a2, a3, b0, b1) \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 " \
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
                 : "+f"((d)[0]), "+f"((d)[1]), "+f"((d)[2]), "+f"((d)[3]) \
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))
#define TURNED(r, p) \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" \
                 : "=r"((r)[0]), "=r"((r)[1]), "=r"((r)[2]), "=r"((r)[3]) : "r"(LOCAL_AT(p)))
#define TAKEN(r, p) \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" \
                 : "=r"((r)[0]), "=r"((r)[1]), "=r"((r)[2]), "=r"((r)[3]) : "r"(LOCAL_AT(p)))
static inline float units_power(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#define POWER(x) units_power(x)
static inline float units_swapped(float v, int distance) {
    float other;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;" : "=f"(other) : "f"(v), "r"(distance));
    return other;
}
static inline uint units_halves(float low, float high) {
    uint pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
static inline float2 pair_floats(uint v) {
    float low, high;
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\ncvt.f32.f16 %0, low;\ncvt.f32.f16 %1, high;\n}"
        : "=f"(low), "=f"(high) : "r"(v));
    return (float2)(low, high);
}
static inline uint units_fused(uint a, uint b, uint c) {
    uint d;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}
#define SWAPPED(v, d) units_swapped(v, d)
#define HALVES(low, high) units_halves(low, high)
#define FUSED(a, b, c) units_fused(a, b, c)
#define SOME_WARPS(condition) if (condition)
// Pairs of bytes have no asynchronous copy.
#define COPY_2(to, from, exists) *(local ushort *)(to) = (exists) ? *(global const ushort *)(from) : (ushort)0
#define COPY_4(to, from, exists) \
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" \
                 : : "r"(LOCAL_AT(to)), "l"((ulong)(size_t)(from)), "r"((exists) ? 4 : 0))
#define COPY_8(to, from, exists) \
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" \
                 : : "r"(LOCAL_AT(to)), "l"((ulong)(size_t)(from)), "r"((exists) ? 8 : 0))
#define COPY_16(to, from, exists) \
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" \
                 : : "r"(LOCAL_AT(to)), "l"((ulong)(size_t)(from)), "r"((exists) ? 16 : 0))
#define COPY(bytes, to, from, exists) CAT(COPY_, bytes)(to, from, exists)
#define COPY_DONE asm volatile("cp.async.commit_group;")
#define COPY_WAIT_(n) asm volatile("cp.async.wait_group " #n ";")
#define COPY_WAIT(n) COPY_WAIT_(n)
#endif
