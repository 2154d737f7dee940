// Quantises rows of a to signed bytes with a scale per group: group g of row m is a[m, g * group ...] = by[g, m] * q[g, m, ...].
// The largest magnitude of a group becomes 127; NaN and infinity propagate to the scale. q is padded to whole 16 bytes,
// in the order of dot_low_bit_int8.cl; a group has room for `stride` rows. sums are those of q. Grid: stride, work-groups of one work-item.
#include "quantized/dot_low_bit_int8.cl"
#define SHIFTER 12582912.0f // 1.5 * 2^23: added to a float below 2^22, its low bits are the nearest integer
#if STORAGE == 0
#define READ(i) LOAD_AT(float, 16, a + (i))
#else
#define READ(i) LOADN(16, a, i)
#endif

__attribute__((reqd_work_group_size(1, 1, 1)))
kernel void quantize_activations(global const REAL *restrict a, global uchar *restrict q, global float *restrict by,
                       global int *restrict sums, int M, int K, int stride, int group) {
    const int m = get_global_id(0);
    if (m >= stride) return;
    if (m >= M) { // zeros, since products of denormals are slow
        for (int k0 = 0, g = 0; k0 < K; k0 += group, ++g) by[(size_t)g * stride + m] = sums[(size_t)g * stride + m] = 0;
        return;
    }
    const int room = (group + 15) / 16 * 16;
    a += (size_t)m * K;
    for (int k0 = 0, g = 0; k0 < K; k0 += group, ++g) {
        const int count = min(group, K - k0), whole = count / 16 * 16;
        float left[16];
        for (int k = 0; k < 16; ++k) left[k] = whole + k < count ? LOAD(a, k0 + whole + k) : 0.0f;
        // As integers, magnitudes are ordered as they are, NaN above all.
        uint16 bits = as_uint16(vload16(0, left)) & 0x7fffffffu;
        for (int k = 0; k < whole; k += 16) bits = max(bits, as_uint16(READ(k0 + k)) & 0x7fffffffu);
        const uint8 b8 = max(bits.lo, bits.hi);
        const uint4 b4 = max(b8.lo, b8.hi);
        const float most = as_float(max(max(b4.x, b4.y), max(b4.z, b4.w)));
        const float turns = most > 0 ? 127.0f / most : 0.0f;
        const size_t at = (size_t)g * stride + m;
        int16 sum = (int16)0;
        for (int k = 0; k < count; k += 16) {
            const float16 v = k < whole ? READ(k0 + k) : vload16(0, left);
            const char16 c = as_char16(convert_uchar16(as_uint16(v * turns + SHIFTER) & 255u));
            sum += convert_int16(c);
            VSTORE_AT(uchar, 16, as_uchar16(IN_ORDER(c)), q + at * room + k);
        }
        const int8 s8 = sum.lo + sum.hi;
        const int4 s4 = s8.lo + s8.hi;
        by[at] = most / 127.0f;
        sums[at] = s4.x + s4.y + s4.z + s4.w;
    }
}
