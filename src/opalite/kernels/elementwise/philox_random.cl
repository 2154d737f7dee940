// Random numbers by Philox 4x32-10: block i gives elements 4 * i to 4 * i + 3, from counter i and the seed as key.
//   KIND   0 uniform, 1 normal, 2 bernoulli
//   BITS   random bits of a number in [0, 1)
//   bernoulli reads probabilities of type REAL and writes ELEM (uchar, ushort, uint or ulong): ONE, the bits of 1, or 0
static inline uint4 philox(ulong counter, uint key0, uint key1) {
    uint4 w = (uint4)((uint)counter, (uint)(counter >> 32), 0, 0);
    for (int round_ = 0; round_ < 10; ++round_) {
        const uint a = 0xD2511F53u, b = 0xCD9E8D57u;
        w = (uint4)(mul_hi(b, w.z) ^ w.y ^ key0, b * w.z, mul_hi(a, w.x) ^ w.w ^ key1, a * w.x);
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return w;
}

#if BITS == 32
#define SCALE ((ACC)2.3283064365386963e-10)
#else
#define SCALE ((ACC)5.9604644775390625e-8f)
#endif
// A number in [0, 1); with 1 added to the word, in (0, 1].
#define UNIT(word, add) ((ACC)(((ulong)(word) >> (32 - BITS)) + (add)) * SCALE)

#if KIND == 2
kernel void random_bernoulli(global const REAL *x, global ELEM *y, int blocks, int count, uint key0, uint key1) {
    const int id = get_global_id(0);
    if (id >= blocks) return;
    const uint4 w = philox(id, key0, key1);
    const uint words[4] = {w.x, w.y, w.z, w.w};
    for (int k = 0; k < 4 && 4 * id + k < count; ++k) {
        const int i = 4 * id + k;
        y[i] = UNIT(words[k], 0) < LOAD(x, i) ? (ELEM)ONE : (ELEM)0;
    }
}

#else
// uniform: first + u * factor in [low, high); normal: first + z * factor of mean and standard deviation.
kernel void random_real(global REAL *y, int blocks, int count, uint key0, uint key1, ACC first, ACC factor) {
    const int id = get_global_id(0);
    if (id >= blocks) return;
    const uint4 w = philox(id, key0, key1);
#if KIND == 0
    const ACC drawn[4] = {UNIT(w.x, 0), UNIT(w.y, 0), UNIT(w.z, 0), UNIT(w.w, 0)};
#else
    const ACC r0 = sqrt(-2 * log(UNIT(w.x, 1))), r1 = sqrt(-2 * log(UNIT(w.z, 1)));
    const ACC a0 = 2 * UNIT(w.y, 0), a1 = 2 * UNIT(w.w, 0);
    const ACC drawn[4] = {r0 * cospi(a0), r0 * sinpi(a0), r1 * cospi(a1), r1 * sinpi(a1)};
#endif
    for (int k = 0; k < 4 && 4 * id + k < count; ++k) STORE(y, 4 * id + k, fma(drawn[k], factor, first));
}
#endif
