// y[slot, n] = x[slot / each, :] w[expert N + n, :] + bias, on GPUs: bound by reading w, of selected experts only.
// A work-group of WIDTH x PARTS work-items owns a panel of one expert and takes its slots MR at a time. Neighbouring work-items
// read adjacent columns (of words 16 bytes each), PARTS of them split a column; their sums meet in local memory.
// Grid: (panels that an expert touches * group size, slots, or experts where SORTED).
#ifndef MR
#define MR 1
#define PARTS 8
#define DEEP 4
#endif
#define WIDTH 32
#define GROUP (WIDTH * PARTS)
#include "experts/expert_weight_panels.cl"

#if BITS
// Terms k to before k + count of MR rows times the numbers of `word`, minus `less`.
#define ADD_WORD(count, word, k, less, by)                                                       \
    {                                                                                            \
        float part_sum[MR];                                                                      \
        for (int i = 0; i < MR; ++i) part_sum[i] = 0;                                            \
        _Pragma("unroll") for (int j = 0; j < (count); ++j) {                                    \
            const float wide = (float)((word) >> (j * BITS) & (LEVELS - 1u)) - (less);           \
            for (int i = 0; i < MR; ++i) part_sum[i] += LOAD(x_row[i], (k) + j) * wide;          \
        }                                                                                        \
        for (int i = 0; i < MR; ++i) sum[i] += (by) * part_sum[i];                               \
    }
#endif

__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void expert_groups(global const REAL *restrict x, SLOTS_PARAM WEIGHTS_PARAM BIAS_PARAM global REAL *restrict y, int slots,
                          int N, int K, int each, int experts EPILOGUE_PARAMS) {
    local float sums[MR * GROUP];
    const int item = get_local_id(0), lane = item % WIDTH, part = item / WIDTH;
    TAKE_SLOTS((int)get_global_id(1), slots)
    const int panel = expert * N / WIDTH + get_group_id(0), column = panel * WIDTH;
    if (max(column, expert * N) >= min(column + WIDTH, (expert + 1) * N)) return;
#if BITS
    const int words = (K + PER - 1) / PER, quads = (words + 3) / 4;
    const size_t scales = (size_t)panel * ((K + block - 1) / block) * WIDTH + lane;
    global const uint4 *const from = (global const uint4 *)(b + PANEL_AT(panel, words)) + lane;
#else
    global const REAL *const from = b + (size_t)panel * K * WIDTH + lane;
#endif
    for (int m0 = first; m0 < last; m0 += MR) {
        global const REAL *x_row[MR];
        float sum[MR];
        for (int i = 0; i < MR; ++i) {
            // Rows past the end repeat the last one and are not stored.
            x_row[i] = x + (size_t)(SLOT(min(m0 + i, last - 1)) / each) * K;
            sum[i] = 0;
        }
#if BITS
        #pragma unroll 2
        for (int q = part; q < quads; q += PARTS) {
            const uint4 quad = from[(size_t)q * WIDTH];
            const uint four[4] = {quad.x, quad.y, quad.z, quad.w};
            #pragma unroll
            for (int f = 0; f < 4; ++f) {
                const int k = (q * 4 + f) * PER, left = K - k;
                if (left <= 0) break;
                const size_t at = scales + (size_t)(k / block) * WIDTH;
                const float by = LOAD_SCALE(1, scale, at), less = (MIDDLE(1, at) - 1.0f) * LEVELS;
                if (left >= PER) ADD_WORD(PER, four[f], k, less, by)
                else ADD_WORD(left, four[f], k, less, by)
            }
        }
#else
        #pragma unroll 4
        for (int k = part; k < K; k += PARTS) {
            const float wide = LOAD(from, (size_t)k * WIDTH);
            for (int i = 0; i < MR; ++i) sum[i] += LOAD(x_row[i], k) * wide;
        }
#endif
        for (int i = 0; i < MR; ++i) sums[i * GROUP + item] = sum[i];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int t = item; t < MR * WIDTH; t += GROUP) {
            const int i = t / WIDTH, c = column + t % WIDTH, n = c - expert * N;
            if (m0 + i < last && n >= 0 && n < N) {
                float v = 0;
                for (int p = 0; p < PARTS; ++p) v += sums[i * GROUP + p * WIDTH + t % WIDTH];
                const int r = SLOT(m0 + i);
                const ACC out = EPILOGUE1(BIASED(v, LOAD, c), r, n, slots, N);
                STORE(y, (size_t)r * N + n, out);
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
