// The matrices of experts, one below the other, as kernels read them: columns of panels of WIDTH, in words of few bits
// (quantized/unpack_low_bit.cl) where BITS, else [panel][K][WIDTH] floats. An expert's columns may start inside a panel, so that its
// first and last panels may contain columns of other experts.
//   INDEX       type of picks: int or long
//   SORTED      slots are sorted by expert (sort_by_expert.cl); else each is a group of its own
//   HAS_BIAS    one number for each column of all experts
//   WEIGHTS_PARAM   the kernels' parameters for the matrices
//   SLOTS_PARAM     and for the slots; a work-group takes the slots of one expert:
//   TAKE_SLOTS(g, count)   declares `expert`, and its slots from `first` to before `last`, for group g
//   SLOT(i)                number of slot i in y
#ifndef BITS
#define BITS 0
#endif
#if BITS
#include "quantized/unpack_low_bit.cl"
#include "quantized/packed_word_offsets.cl"
#define WEIGHTS_PARAM global const uint *restrict b, global const SCALE *restrict scale, ZEROS_PARAM int block, float middle,
#else
#define WEIGHTS_PARAM global const REAL *restrict b,
#endif
#ifndef INDEX
#define INDEX long
#define SORTED 0
#define HAS_BIAS 0
#endif
#if HAS_BIAS
#define BIAS_PARAM global const REAL *restrict bias,
#else
#define BIAS_PARAM
#endif
#if SORTED
#define SLOTS_PARAM global const int *restrict starts, global const int *restrict order,
#define TAKE_SLOTS(g, count) \
    const int expert = min(g, experts - 1), first = (g) < experts ? starts[expert] : 0, last = (g) < experts ? starts[expert + 1] : 0;
#define SLOT(i) order[i]
#else
#define SLOTS_PARAM global const INDEX *restrict picks,
#define TAKE_SLOTS(g, count) \
    const int first = min(g, (count) - 1), last = (g) < (count) ? first + 1 : first; \
    const INDEX pick = picks[first]; \
    const int expert = (int)clamp(pick < 0 ? pick + experts : pick, (INDEX)0, (INDEX)(experts - 1));
#define SLOT(i) (i)
#endif
// Columns low to before high of a row r of y, whose sums from `column` on are floats in private memory; one loop, so that the
// epilogue is compiled once and not for each vector.
#if HAS_BIAS
#define BIASED(v, load, c) ((v) + load(bias, c))
#else
#define BIASED(v, load, c) (v)
#endif
#define STORE_ROW(results, r)                                                                   \
    _Pragma("unroll 1") for (int c = low; c < high;) {                                          \
        const int n = c - expert * N;                                                           \
        if (c + PACK <= high) {                                                                 \
            const ACCV found = BIASED(VLOAD(PACK, c - column, results), LOADV, c);              \
            const ACCV out = EPILOGUE(found, r, n, slots, N);                                   \
            STOREV(y, (size_t)(r) * N + n, out);                                                \
            c += PACK;                                                                          \
        } else {                                                                                \
            const ACC found = BIASED(results[c - column], LOAD, c);                             \
            const ACC out = EPILOGUE1(found, r, n, slots, N);                                   \
            STORE(y, (size_t)(r) * N + n, out);                                                 \
            ++c;                                                                                \
        }                                                                                       \
    }
