// Linear attention: each position is added to a state [dk, dv] of its head, which queries then read. A work-item keeps VEC
// adjacent columns of one head's state, which no other work-item uses, and iterates over the positions. Single columns are
// in `after`, beside those of other work-items; several columns are in `held`, row by row: rows of `after` a power of two
// apart would map to few cache sets.
//   DELTA   the update is beta (v - S^T k) instead of v    GATED   decay: 0 none; 1 per head; 2 per row
//   ONE_RATE   all heads share beta
#if STORAGE == 0
#define GET_1(p) (*(p))
#define GET_2(p) VLOAD_AT(float, 2, p)
#define GET_4(p) VLOAD_AT(float, 4, p)
#define GET_8(p) VLOAD_AT(float, 8, p)
#define GET_16(p) VLOAD_AT(float, 16, p)
#define PUT_1(p, v) (*(p) = (v))
#define PUT_2(p, v) VSTORE_AT(float, 2, v, p)
#define PUT_4(p, v) VSTORE_AT(float, 4, v, p)
#define PUT_8(p, v) VSTORE_AT(float, 8, v, p)
#define PUT_16(p, v) VSTORE_AT(float, 16, v, p)
#define GET(N, p, i) CAT(GET_, N)((p) + (i))
#define PUT(N, p, i, v) CAT(PUT_, N)((p) + (i), v)
#else
#define GET(N, p, i) LOADN(N, p, i)
#define PUT(N, p, i, v) STOREN(N, p, i, v)
#endif
#if VEC == 1
#define HELD_PARAM
#define OWN after + own
#define ROW dv
#else
#define HELD_PARAM global REAL *restrict held,
#define OWN held + id * dk * VEC + (column - begin)
#define ROW VEC
#endif
#define HELD(N, i) GET(N, mine, (i) * ROW)
#if GATED == 2
#define FADE(i) exp(LOAD(decay, at * heads * dk + h * dk + (i)))
#define HEAD_FADE
#elif GATED == 1
#define FADE(i) fade
#define HEAD_FADE const ACC fade = exp(LOAD(decay, at * heads + h));
#else
#define FADE(i) 1
#define HEAD_FADE
#endif

// Sums over rows use four accumulators in turn, to hide latency.
#define OVER_ROWS(N, total, ROW)                                       \
    do {                                                               \
        VEC_T(ACC, N) s0 = (VEC_T(ACC, N))(0), s1 = s0, s2 = s0, s3 = s0; \
        int i = 0;                                                     \
        for (; i + 3 < dk; i += 4) {                                   \
            ROW(N, i, s0);                                             \
            ROW(N, i + 1, s1);                                         \
            ROW(N, i + 2, s2);                                         \
            ROW(N, i + 3, s3);                                         \
        }                                                              \
        for (; i < dk; ++i) ROW(N, i, s0);                             \
        total = (s0 + s1) + (s2 + s3);                                 \
    } while (0)

// Loads a position's key; rows with a decay of their own are scaled here.
#if GATED == 2
#define FIND(N, i, sum)                                                \
    do {                                                               \
        const VEC_T(ACC, N) faded = HELD(N, i) * FADE(i);              \
        PUT(N, mine, (i) * ROW, faded);                       \
        sum += faded * LOAD(k, key + (i));                             \
    } while (0)
#define LEFT(N, i) HELD(N, i)
#else
#define FIND(N, i, sum) sum += HELD(N, i) * LOAD(k, key + (i))
#define LEFT(N, i) (HELD(N, i) * FADE(i))
#endif
#if DELTA
#define FORGET(N)                                                      \
    VEC_T(ACC, N) found;                                               \
    OVER_ROWS(N, found, FIND);                                         \
    u = (u - found * (GATED == 1 ? FADE(0) : 1)) * LOAD(beta, ONE_RATE ? at : at * heads + h);
#else
#undef LEFT
#define LEFT(N, i) (HELD(N, i) * FADE(i))
#define FORGET(N)
#endif

#define ADD(N, i, sum)                                                 \
    do {                                                               \
        const VEC_T(ACC, N) row = LEFT(N, i) + LOAD(k, key + (i)) * u; \
        PUT(N, mine, (i) * ROW, row);                         \
        sum += row * LOAD(q, query + (i));                             \
    } while (0)
#define READ(N, i, sum) sum += HELD(N, i) * LOAD(q, query + (i))

#define WALK(N)                                                        \
    do {                                                               \
        global REAL *mine = OWN;                                       \
        for (int i = 0; i < dk; ++i) PUT(N, mine, i * ROW, GET(N, state, own + i * dv)); \
        for (int t = 0; t < steps; ++t) {                              \
            const int at = b * steps + t, key = (at * heads + h) * dk; \
            HEAD_FADE                                                  \
            VEC_T(ACC, N) sum, u = GET(N, v, (at * heads + h) * dv + column); \
            FORGET(N)                                                  \
            int query = (at * queries + asked) * dk, to = (at * outs + out) * dv + column; \
            OVER_ROWS(N, sum, ADD);                                    \
            PUT(N, y, to, sum * scale);                             \
            for (int g = 1; g < group; ++g) {                          \
                query += dk;                                           \
                to += dv;                                              \
                OVER_ROWS(N, sum, READ);                               \
                PUT(N, y, to, sum * scale);                         \
            }                                                          \
        }                                                              \
        if (VEC > 1) {                                                 \
            for (int i = 0; i < dk; ++i) PUT(N, after, own + i * dv, HELD(N, i)); \
        }                                                              \
    } while (0)

#if GATED
#define DECAY_PARAM global const REAL *restrict decay,
#else
#define DECAY_PARAM
#endif
#if DELTA
#define BETA_PARAM global const REAL *restrict beta,
#else
#define BETA_PARAM
#endif

kernel void linear_attention(
    global const REAL *restrict q, global const REAL *restrict k, global const REAL *restrict v,
    global const REAL *restrict state, DECAY_PARAM BETA_PARAM HELD_PARAM global REAL *restrict y,
    global REAL *restrict after, int items, int chunks, int steps, int queries, int heads, int dk, int dv, float scale
) {
    const int id = get_global_id(0);
    if (id >= items) return;
    const int line = id / chunks, begin = (id - line * chunks) * VEC;
    const int b = line / heads, h = line - b * heads;
    const int group = max(queries / heads, 1), outs = max(queries, heads), out = h * group;
    const int asked = queries < heads ? h / (heads / queries) : out;
    int column = begin, own = line * dk * dv + begin;
    if (begin + VEC <= dv) {
        WALK(VEC);
    } else {
        for (; column < dv; ++column, ++own) WALK(1);
    }
}
