// Sums of a few rows with a panel of few bits, on CPUs: each word is dequantised in registers, once for all of MR rows. Panels have
// NV vectors of PACK columns; KS separate sums for adjacent k.
#include "include/prefetch.cl"
#include "include/reduce_lanes.cl"
#define AHEAD (64 * 16) // words: a page
#define FLOATS VEC_T(float, PACK)
#define WORDS VEC_T(uint, PACK)

static inline float sum_of(global const REAL *restrict a, int count) {
    ACCV sums = (ACCV)0;
    int k = 0;
    for (; k + PACK <= count; k += PACK) sums += LOADV(a, k);
    float sum = SUM_LANES(sums);
    for (; k < count; ++k) sum += LOAD(a, k);
    return sum;
}

// sum[KS][MR][NV] += terms k to before k1 of `rows` with the words from `from` on, before scales and zero points. `k` and `from`
// go on past whole words; the rest of a word is processed last.
#define SUM_WORDS(sum, rows, from, k, k1)                                                         \
    _Pragma("unroll 1") for (; k + PER <= (k1); k += PER) {                                       \
        WORDS words[NV];                                                                          \
        _Pragma("unroll") for (int v = 0; v < NV; ++v) {                                          \
            words[v] = LOAD_AT(uint, PACK, from + v * PACK);                                      \
            PREFETCH(from + v * PACK + AHEAD);                                                    \
        }                                                                                         \
        _Pragma("unroll") for (int j = 0; j < PER; ++j) {                                         \
            FLOATS wide[NV];                                                                      \
            _Pragma("unroll") for (int v = 0; v < NV; ++v) wide[v] = UNPACK(PACK, words[v], j);   \
            _Pragma("unroll") for (int i = 0; i < MR; ++i) {                                      \
                const FLOATS x = (FLOATS)LOAD(rows[i], k + j);                                    \
                _Pragma("unroll") for (int v = 0; v < NV; ++v) sum[j % KS][i][v] += x * wide[v];  \
            }                                                                                     \
        }                                                                                         \
        from += WIDTH;                                                                            \
    }                                                                                             \
    _Pragma("unroll 1") for (int j = 0; k + j < (k1); ++j) {                                      \
        _Pragma("unroll") for (int v = 0; v < NV; ++v) {                                          \
            const FLOATS wide = UNPACK(PACK, LOAD_AT(uint, PACK, from + v * PACK), j);            \
            _Pragma("unroll") for (int i = 0; i < MR; ++i) sum[0][i][v] += (FLOATS)LOAD(rows[i], k + j) * wide; \
        }                                                                                         \
    }
