// What one step makes of a unit's sums, for LSTM (KIND 0), GRU (1) and RNN (2) layers. The file that includes this says
//   GIVEN    what z, bias and peep are pointers to      TAKE(p, i)  PACK elements from i on of one of these
//   BLOCK    distance between two gates of a unit
#if KIND == 0
#define GATES 4
#elif KIND == 1
#define GATES 3
#else
#define GATES 1
#endif
// Where a GRU's reset gate acts on the state, the last gate's sum needs a pass of its own.
#if KIND == 1 && !RESET_LATE
#define TWO_PASSES 1
#define LAST_GATES 1
#else
#define TWO_PASSES 0
#define LAST_GATES GATES
#endif

// A state next to zero, such as a gate that has closed leaves, is zero: x86 processors take a hundred times as long for a
// product with a number that is not normal, and the next layer multiplies each by a whole column.
#if STORAGE == 2
#define LEAST_NORMAL DBL_MIN
#else
#define LEAST_NORMAL FLT_MIN
#endif
#define NORMAL(v) (fabs(v) < (ACCV)(ACC)LEAST_NORMAL ? (ACCV)0 : (v))

// Gate g of a unit before its activation: the state's share s, the inputs' and the bias.
static inline ACCV gate(int g, ACCV s, GIVEN *z, GIVEN *bias) {
    return HAS_BIAS ? s + TAKE(z, g * BLOCK) + TAKE(bias, g * BLOCK) : s + TAKE(z, g * BLOCK);
}
#define GATE(g, s) gate(g, s, z, bias)
#if HAS_PEEP
#define PEEP(i, v, c) ((v) + TAKE(peep, (i) * BLOCK) * (c))
#else
#define PEEP(i, v, c) (v)
#endif

// The new h of a unit from the state's shares s of the gates; z, bias and peep are the unit's. *cell is c of an LSTM,
// which is replaced, or the update gate that a GRU's first pass left.
static inline ACCV next_state(const ACCV *s, ACCV h, ACCV *cell, GIVEN *z, GIVEN *bias,
                              GIVEN *peep, int d) {
#if KIND == 0
    const ACCV c = *cell, i = ACT(0, PEEP(0, GATE(0, s[0]), c), d);
#if COUPLED
    const ACCV f = (ACC)1 - i;
#else
    const ACCV f = ACT(0, PEEP(2, GATE(2, s[2]), c), d);
#endif
    const ACCV next = f * c + i * ACT(1, GATE(3, s[3]), d);
    *cell = NORMAL(next);
    return ACT(0, PEEP(1, GATE(1, s[1]), next), d) * ACT(2, next, d);
#elif KIND == 1
#if TWO_PASSES
    const ACCV update = *cell, inner = s[0];
#else
    const ACCV update = ACT(0, GATE(0, s[0]), d), reset = ACT(0, GATE(1, s[1]), d);
#if HAS_BIAS
    const ACCV inner = reset * (s[2] + TAKE(bias, 3 * BLOCK));
#else
    const ACCV inner = reset * s[2];
#endif
#endif
    return ((ACC)1 - update) * ACT(1, GATE(2, inner), d) + update * h;
#else
    return ACT(0, GATE(0, s[0]), d);
#endif
}
