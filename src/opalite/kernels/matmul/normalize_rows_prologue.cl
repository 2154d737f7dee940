// Normalises the rows of a skinny product while they are copied to local memory (matmul/skinny_mma.cl and quantized/skinny_mma_quantized.cl, after
// mma/mma_instructions.cl): as Normalize stores them, (x - mean) / sqrt(variance + epsilon) * scale + bias rounded to halves, without a
// launch of their own. Each work-group does it for its MR rows: work-item i has vectors i, i + GROUP, ... of every row, which
// stay in registers until the product's kernel puts them where it reads them. K is a multiple of VECTOR. A row has ROW_TERMS
// terms, zeros from K on.
//   NORMALIZED        0: nothing here is used; 1: by mean and variance; 2: by the mean of squares (RMS)
//   VECTOR            4 or 8: halves per load
//   HAS_SCALE, HAS_BIAS   one for each term, constants, which are loaded before waiting for earlier launches
#ifndef NORMALIZED
#define NORMALIZED 0
#define VECTOR 8
#define HAS_SCALE 0
#define HAS_BIAS 0
#endif
#if NORMALIZED
#if HAS_SCALE
#define ROW_SCALE_PARAM global const REAL *row_scale,
#else
#define ROW_SCALE_PARAM
#endif
#if HAS_BIAS
#define ROW_BIAS_PARAM global const REAL *row_bias,
#else
#define ROW_BIAS_PARAM
#endif
#define EPSILON_PARAM , float epsilon
#define HELD ((ROW_TERMS + GROUP * VECTOR - 1) / (GROUP * VECTOR)) // vectors of a row that a work-item has
#define VECTOR_AT(u) (((u) * GROUP + (int)get_local_id(0)) * VECTOR)
#if VECTOR == 8
typedef uint4 Halves;
#define AS_HALVES(p) ((uint4)((p)[0], (p)[1], (p)[2], (p)[3]))
#else
typedef uint2 Halves;
#define AS_HALVES(p) ((uint2)((p)[0], (p)[1]))
#endif
typedef struct {
    Halves vectors[HELD];
} RowPart;

// Loads the work-item's part of a row of K halves at `from`; vectors past the end repeat the last one.
static inline void read_part(RowPart *part, global const REAL *from, int K) {
    #pragma unroll
    for (int u = 0; u < HELD; ++u) part->vectors[u] = *(global const Halves *)(from + min(VECTOR_AT(u), K - VECTOR));
}

// Pair p of the halves of vector u.
#define PAIR(part, u, p) (((const uint *)&(part).vectors[u])[p])

// Reduces sums[i] over all work-items. `parts`: MR * PARTS floats of free local memory.
static inline void fold_rows(float *sums, local float *parts, UNITS_PARAM) {
    UNROLLED
    for (int i = 0; i < MR; ++i) {
        UNROLLED
        for (int d = 16; d > 0; d /= 2) sums[i] += SWAPPED(sums[i], d);
        if (LANE == 0) parts[i * PARTS + WARP] = sums[i];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    #pragma unroll
    for (int i = 0; i < MR; ++i) {
        float sum = parts[i * PARTS];
        #pragma unroll
        for (int w = 1; w < PARTS; ++w) sum += parts[i * PARTS + w];
        sums[i] = sum;
    }
}

// Sums over the work-item's part of each row of x - means, squared if so.
static inline void add_rows(float *sums, const RowPart *parts, const float *means, int K, bool squared) {
    #pragma unroll
    for (int i = 0; i < MR; ++i) {
        float sum = ZERO;
        #pragma unroll
        for (int u = 0; u < HELD; ++u) {
            #pragma unroll
            for (int p = 0; p < VECTOR / 2; ++p) {
                const float2 d = pair_floats(PAIR(parts[i], u, p)) - means[i];
                const float2 term = squared ? d * d : d;
                if (VECTOR_AT(u) < K) sum += term.x + term.y;
            }
        }
        sums[i] = sum;
    }
}

// The work-item's part of each row becomes that of the normal row; `parts`: twice MR * PARTS floats.
static inline void normalise_rows(RowPart *held, const RowPart *scale, const RowPart *bias, local float *parts, int K,
                                  float epsilon, UNITS_PARAM) {
    float means[MR], norms[MR];
    #pragma unroll
    for (int i = 0; i < MR; ++i) means[i] = ZERO;
#if NORMALIZED == 1
    add_rows(norms, held, means, K, false);
    fold_rows(norms, parts, units_);
    #pragma unroll
    for (int i = 0; i < MR; ++i) means[i] = norms[i] / K;
#endif
    add_rows(norms, held, means, K, true);
    fold_rows(norms, parts + MR * PARTS, units_);
    #pragma unroll
    for (int i = 0; i < MR; ++i) norms[i] = 1.0f / sqrt(norms[i] / K + epsilon);
    UNROLLED // PoCL 3.0 crashes on the code of 16 rows
    for (int i = 0; i < MR; ++i) {
        #pragma unroll
        for (int u = 0; u < HELD; ++u) {
            uint pairs[VECTOR / 2];
            #pragma unroll
            for (int p = 0; p < VECTOR / 2; ++p) {
                float2 v = (pair_floats(PAIR(held[i], u, p)) - means[i]) * norms[i];
#if HAS_SCALE
                v *= pair_floats(PAIR(*scale, u, p));
#endif
#if HAS_BIAS
                v += pair_floats(PAIR(*bias, u, p));
#endif
                pairs[p] = VECTOR_AT(u) < K ? HALVES(v.x, v.y) : 0;
            }
            held[i].vectors[u] = AS_HALVES(pairs);
        }
    }
}
#else
#define ROW_SCALE_PARAM
#define ROW_BIAS_PARAM
#define EPSILON_PARAM
#endif
