// transpose_tile(v): swaps rows and columns of a TILE x TILE square held in TILE vectors.  Needs TILE (2, 4, 8 or 16) and
// TILE_V, a vector type of TILE lanes.  Each round zips row i with row i + TILE / 2, which turns the bits of the index
// (row, lane) round by one; log2(TILE) rounds swap both (Stone's perfect shuffle).
#if TILE == 2
#define ZIP_LO(a, b) ((TILE_V)((a).s0, (b).s0))
#define ZIP_HI(a, b) ((TILE_V)((a).s1, (b).s1))
#elif TILE == 4
#define ZIP_LO(a, b) ((TILE_V)((a).s0, (b).s0, (a).s1, (b).s1))
#define ZIP_HI(a, b) ((TILE_V)((a).s2, (b).s2, (a).s3, (b).s3))
#elif TILE == 8
#define ZIP_LO(a, b) ((TILE_V)((a).s0, (b).s0, (a).s1, (b).s1, (a).s2, (b).s2, (a).s3, (b).s3))
#define ZIP_HI(a, b) ((TILE_V)((a).s4, (b).s4, (a).s5, (b).s5, (a).s6, (b).s6, (a).s7, (b).s7))
#elif TILE == 16
#define ZIP_LO(a, b) ((TILE_V)((a).s0, (b).s0, (a).s1, (b).s1, (a).s2, (b).s2, (a).s3, (b).s3, \
                               (a).s4, (b).s4, (a).s5, (b).s5, (a).s6, (b).s6, (a).s7, (b).s7))
#define ZIP_HI(a, b) ((TILE_V)((a).s8, (b).s8, (a).s9, (b).s9, (a).sa, (b).sa, (a).sb, (b).sb, \
                               (a).sc, (b).sc, (a).sd, (b).sd, (a).se, (b).se, (a).sf, (b).sf))
#endif

static inline void transpose_tile(TILE_V *v) {
#pragma unroll
    for (int round = 1; round < TILE; round *= 2) {
        TILE_V t[TILE];
#pragma unroll
        for (int i = 0; i < TILE / 2; ++i) {
            t[2 * i] = ZIP_LO(v[i], v[i + TILE / 2]);
            t[2 * i + 1] = ZIP_HI(v[i], v[i + TILE / 2]);
        }
#pragma unroll
        for (int i = 0; i < TILE; ++i) v[i] = t[i];
    }
}
