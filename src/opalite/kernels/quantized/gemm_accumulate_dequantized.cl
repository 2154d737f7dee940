// Sums of many rows with a panel of few bits, on CPUs: CHUNK of the panel's k at a time are dequantised into memory that stays in the
// L1 cache, for all tiles of MR rows in turn, whose sums are kept in between. Panels have WIDTH = NV * PACK columns.
#define CHUNK 64
#define GROUP 24 // tiles whose sums are kept
#define AHEAD (64 * 16) // words: a page
#define FLOATS VEC_T(float, PACK)
#define WORDS VEC_T(uint, PACK)

// wide[k] = numbers k0 + k of the panel for all k < count, by scales from element `scales` on. `from`, the words of the first
// of them, is advanced past the last. The including kernel defines where scales and zero points are read from.
#define WIDEN_CHUNK(wide, from, scales, k0, count)                                                                   \
    _Pragma("unroll 1") for (int k = 0; k < (count); k += PER) {                                                     \
        const size_t at = (scales) + (size_t)(((k0) + k) / block) * WIDTH;                                           \
        _Pragma("unroll") for (int v = 0; v < NV; ++v) {                                                             \
            const WORDS words = LOAD_AT(uint, PACK, from + v * PACK);                                                \
            PREFETCH(from + v * PACK + AHEAD);                                                                       \
            const FLOATS by = LOAD_SCALE(PACK, scale, at + v * PACK) * STEP, less = MIDDLE(PACK, at + v * PACK);     \
            _Pragma("unroll") for (int j = 0; j < PER; ++j) wide[k + j][v] = (UNPACK(PACK, words, j) - less) * by;   \
        }                                                                                                            \
        from += WIDTH;                                                                                               \
    }

// kept[i] += what `count` numbers of row i, from `rows`[i] on, give with those dequantised numbers; overwritten if `begins`.
static inline void add_tile(FLOATS kept[MR][NV], global const REAL *const rows[MR], FLOATS wide[CHUNK][NV], int count,
                            bool begins) {
    FLOATS sum[MR][NV];
    #pragma unroll
    for (int i = 0; i < MR * NV; ++i) sum[i / NV][i % NV] = begins ? (FLOATS)0 : kept[i / NV][i % NV];
    #pragma unroll 1
    for (int k = 0; k < count; ++k) {
        #pragma unroll
        for (int i = 0; i < MR; ++i) {
            const FLOATS x = (FLOATS)LOAD(rows[i], k);
            #pragma unroll
            for (int v = 0; v < NV; ++v) sum[i][v] += x * wide[k][v];
        }
    }
    #pragma unroll
    for (int i = 0; i < MR * NV; ++i) kept[i / NV][i % NV] = sum[i / NV][i % NV];
}
