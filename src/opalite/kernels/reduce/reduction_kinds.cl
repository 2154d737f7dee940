// A kind of reduction in macros that work on elements and on vectors, for ops/reduce.py:
//   KIND        0 sum, 1 mean, 2 max, 3 min, 4 prod, 5 l1, 6 l2, 7 sumsq, 8 logsum, 9 logsumexp (here: its maximum)
//   START       what a reduction of nothing gives     MAP(v)      what counts of an element
//   JOIN(a, b)  two partial results                   FINISH(v, count)   the result of `count` elements
//   join_lanes(v)   JOIN over the lanes of ACCV v
#ifndef KIND
#define KIND 0
#endif

// Extremes of the stored type, which is narrower than ACC for 8- and 16-bit integers. A NaN wins, and stays.
#if STORAGE == 8
#define LEAST CHAR_MIN
#define MOST CHAR_MAX
#elif STORAGE == 9
#define LEAST 0
#define MOST UCHAR_MAX
#elif STORAGE == 10
#define LEAST SHRT_MIN
#define MOST SHRT_MAX
#elif STORAGE == 11
#define LEAST 0
#define MOST USHRT_MAX
#else
#define LEAST ACC_LOWEST
#define MOST ACC_HIGHEST
#endif
#if ACC_IS_FLOAT
#define OR_NAN(v) | ((v) != (v))
#else
#define OR_NAN(v)
#endif

// Integers of 64 bits end at their limits instead of wrapping around.
#if STORAGE == 4 || STORAGE == 6
#define PLUS(a, b) add_sat(a, b)
#define TIMES(a, b) mad_sat(a, b, (a) ^ (a))
#define MINUS(v) sub_sat((v) ^ (v), v)
#else
#define PLUS(a, b) ((a) + (b))
#define TIMES(a, b) ((a) * (b))
#define MINUS(v) (-(v))
#endif

#if KIND == 2 || KIND == 9
#define START ((ACC)LEAST)
#define JOIN(a, b) ((((b) > (a)) OR_NAN(b)) ? (b) : (a))
#elif KIND == 3
#define START ((ACC)MOST)
#define JOIN(a, b) ((((b) < (a)) OR_NAN(b)) ? (b) : (a))
#elif KIND == 4
#define START ((ACC)1)
#define JOIN(a, b) TIMES(a, b)
#else
#define START ((ACC)0)
#define JOIN(a, b) PLUS(a, b)
#endif

#if KIND == 5 && ACC_IS_FLOAT
#define MAP(v) fabs(v)
#elif KIND == 5 && STORAGE != 5 && STORAGE != 6
#define MAP(v) ((v) < 0 ? MINUS(v) : (v))
#elif KIND == 6 || KIND == 7
#define MAP(v) TIMES(v, v)
#else
#define MAP(v) (v)
#endif

#if KIND == 1
#define FINISH(v, count) ((v) / (ACC)max(count, 1))
#elif KIND == 6
#define FINISH(v, count) sqrt(v)
#elif KIND == 8
#define FINISH(v, count) log(v)
#else
#define FINISH(v, count) (v)
#endif

static inline ACC join_lanes(ACCV v) {
#if PACK == 16
    const VEC_T(ACC, 8) v8 = JOIN(v.lo, v.hi);
#elif PACK == 8
    const VEC_T(ACC, 8) v8 = v;
#endif
#if PACK >= 8
    const VEC_T(ACC, 4) v4 = JOIN(v8.lo, v8.hi);
#elif PACK == 4
    const VEC_T(ACC, 4) v4 = v;
#endif
#if PACK >= 4
    const VEC_T(ACC, 2) v2 = JOIN(v4.lo, v4.hi);
#elif PACK == 2
    const VEC_T(ACC, 2) v2 = v;
#endif
#if PACK >= 2
    return JOIN(v2.x, v2.y);
#else
    return v;
#endif
}

// Passes of a reduction that is taken in parts: the first (LAST_PASS 0) leaves ACC, the second (FIRST_PASS 0) joins
// those.
#ifndef FIRST_PASS
#define FIRST_PASS 1
#endif
#ifndef LAST_PASS
#define LAST_PASS 1
#endif
//   READS   what x holds: 0 elements of STORAGE, 1 halves, 2 floats
#ifndef READS
#define READS 0
#endif
#if FIRST_PASS && READS == 1
#define SOURCE half
#define ELEMENTS(n, p, i) HLOAD(n, i, p)
#elif FIRST_PASS && READS == 2
#define SOURCE float
#define ELEMENTS(n, p, i) CONVERT_N(n, ACC)(VLOAD(n, i, p))
#elif FIRST_PASS
#define SOURCE REAL
#define ELEMENTS(n, p, i) LOADN(n, p, i)
#else
#define SOURCE ACC
#define ELEMENTS(n, p, i) VLOAD(n, i, p)
#endif
#if FIRST_PASS
#define TAKE(n, p, i) MAP(ELEMENTS(n, p, i))
#else
#define TAKE ELEMENTS
#endif
#if LAST_PASS
#define RESULT REAL
#define GIVE(n, p, i, v) STOREN(n, p, i, v)
#else
#define RESULT ACC
#define GIVE(n, p, i, v) VSTORE(n, v, i, p)
#endif

// Elements that are joined one after the other before their total joins the others', so that float sums stay accurate.
#define BLOCK 64
