// transpose(rows): a block of PACK x PACK elements transposed in registers; PACK is 4, 8 or 16.

// Interleaves two vectors: TURN_LO their first halves, TURN_HI their second halves.
#define TURN_4(a, b) (a).s0, (b).s0, (a).s1, (b).s1
#define TURN_8(a, b) TURN_4(a, b), (a).s2, (b).s2, (a).s3, (b).s3
#define TURN_16(a, b) TURN_8(a, b), (a).s4, (b).s4, (a).s5, (b).s5, (a).s6, (b).s6, (a).s7, (b).s7
#define TURN(a, b) ((ACCV)(CAT(TURN_, PACK)(a, b)))
#define TURN_LO(a, b) TURN((a).lo, (b).lo)
#define TURN_HI(a, b) TURN((a).hi, (b).hi)

// log2(PACK) perfect shuffles of the rows' elements transpose a block.
static inline void transpose(ACCV *rows) {
    #pragma unroll
    for (int round = PACK; round > 1; round /= 2) {
        ACCV turned[PACK];
        #pragma unroll
        for (int i = 0; i < PACK / 2; ++i) {
            turned[2 * i] = TURN_LO(rows[i], rows[i + PACK / 2]);
            turned[2 * i + 1] = TURN_HI(rows[i], rows[i + PACK / 2]);
        }
        #pragma unroll
        for (int i = 0; i < PACK; ++i) rows[i] = turned[i];
    }
}
