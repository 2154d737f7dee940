// Softmax and normalisation of lines of `size` elements, `step` apart.  kind: 0 softmax, 1 its logarithm, 2 normalised by
// mean and variance, 3 by the mean square.  Element i of line l is scaled by scale[(l % period) * per_line + i / shared],
// and then bias is added, where they are there.
// Line l begins at (l / inner) * inner * size + l % inner.
// Elements of contiguous lines (inner is 1) are computed PACK at once. Grid: groups of `span` lines.
#include "include/no_inline.cl"
#include "include/reduce_lanes.cl"
#define FLOATV VEC_T(float, PACK)
#define BLOCK 64 // as in generic_pool_reduce.cl

#define PARAMETERS \
    global const float *x, global const float *scale, global const float *bias, global float *y, \
    int kind, int count, int size, int inner, int has_scale, int has_bias, int period, int per_line, int shared, \
    float epsilon, float low, float high, int span
#define ARGUMENTS \
    x, scale, bias, y, kind, count, size, inner, has_scale, has_bias, period, per_line, shared, epsilon, low, high, span

static inline void compute_strided(int line, PARAMETERS) {
    const long at = (long)(line / inner) * inner * size + line % inner;
    x += at;
    y += at;
    const int logs = kind == 1, exponents = kind < 2;
    float centre = exponents ? -INFINITY : 0.0f;
    #pragma nounroll
    for (int b = 0; b < size && kind != 3; b += BLOCK) {
        float part = exponents ? -INFINITY : 0.0f;
        #pragma nounroll
        for (int i = b; i < min(b + BLOCK, size); ++i) {
            const float v = x[(long)i * inner];
            part = exponents ? fmax(part, v) : part + v;
        }
        centre = exponents ? fmax(centre, part) : centre + part;
    }
    if (!exponents) centre /= (float)max(size, 1);
    float total = 0.0f;
    #pragma nounroll
    for (int b = 0; b < size; b += BLOCK) {
        float part = 0.0f;
        #pragma nounroll
        for (int i = b; i < min(b + BLOCK, size); ++i) {
            const float v = x[(long)i * inner] - centre;
            const float power = exponents ? exp(v) : v * v;
            if (exponents && !logs) y[(long)i * inner] = power;
            part += power;
        }
        total += part;
    }
    const float factor = exponents ? 1.0f / total : 1.0f / sqrt(total / (float)max(size, 1) + epsilon);
    const int own = (line % period) * per_line;
    #pragma nounroll
    for (int i = 0; i < size; ++i) {
        float v = exponents && !logs ? y[(long)i * inner] * factor : x[(long)i * inner] - centre;
        if (logs) v -= log(total);
        if (!exponents) v *= factor;
        if (has_scale) v *= scale[own + i / shared];
        if (has_bias) v += bias[own + i / shared];
        v = v < low ? low : v;
        y[(long)i * inner] = v > high ? high : v;
    }
}

static inline float largest(global const float *x, int size) {
    float most = -INFINITY;
    int i = 0;
    if (size >= PACK) {
        FLOATV part = LOADV(x, 0);
        #pragma nounroll
        for (i = PACK; i + PACK <= size; i += PACK) {
            const FLOATV v = LOADV(x, i);
            part = v > part ? v : part;
        }
        float lanes[PACK];
        STOREV(lanes, 0, part);
        #pragma clang loop vectorize(disable) unroll(disable)
        for (int k = 0; k < PACK; ++k) most = fmax(most, lanes[k]);
    }
    #pragma clang loop vectorize(disable) unroll(disable)
    for (; i < size; ++i) most = fmax(most, x[i]);
    return most;
}

// Sum over contiguous elements: 0 of themselves, 1 of exponents, which are written to y if `keeps`, 2 of squares; less `centre`.
static inline float sum_line(global const float *x, global float *y, int size, float centre, int what, int keeps) {
    float total = 0.0f;
    int i = 0;
    while (i + PACK <= size) {
        const int end = min(size - PACK, i + (BLOCK - 1) * PACK);
        FLOATV part = (FLOATV)0;
        #pragma nounroll
        for (; i <= end; i += PACK) {
            FLOATV v = LOADV(x, i) - centre;
            if (what == 1) {
                v = exp(v);
                if (keeps) STOREV(y, i, v);
            } else if (what == 2) {
                v *= v;
            }
            part += v;
        }
        total += SUM_LANES(part);
    }
    #pragma clang loop vectorize(disable) unroll(disable)
    for (; i < size; ++i) {
        float v = x[i] - centre;
        if (what == 1) v = exp(v);
        if (what == 1 && keeps) y[i] = v;
        total += what == 2 ? v * v : v;
    }
    return total;
}

static inline FLOATV shared_by(global const float *of, int i, int shared) {
    if (shared == 1) return LOADV(of, i);
    const int first = i / shared;
    if (i + PACK <= (first + 1) * shared) return of[first];
    float lanes[PACK];
    #pragma clang loop vectorize(disable) unroll(disable)
    for (int k = 0; k < PACK; ++k) lanes[k] = of[(i + k) / shared];
    return LOADV(lanes, 0);
}

static inline void compute_contiguous(int line, PARAMETERS) {
    x += (long)line * size;
    y += (long)line * size;
    const int logs = kind == 1, exponents = kind < 2, own = (line % period) * per_line;
    float centre = 0.0f, factor = 1.0f;
    if (exponents) {
        centre = largest(x, size);
        const float total = sum_line(x, y, size, centre, 1, !logs);
        if (logs) centre += log(total);
        else factor = 1.0f / total;
    } else {
        if (kind == 2) centre = sum_line(x, y, size, 0.0f, 0, 0) / (float)max(size, 1);
        factor = 1.0f / sqrt(sum_line(x, y, size, centre, 2, 0) / (float)max(size, 1) + epsilon);
    }
    const int rereads = exponents && !logs;
    int i = 0;
    #pragma nounroll
    for (; i + PACK <= size; i += PACK) {
        FLOATV v = (rereads ? LOADV(y, i) : LOADV(x, i) - centre) * factor;
        if (has_scale) v *= shared_by(scale + own, i, shared);
        if (has_bias) v += shared_by(bias + own, i, shared);
        v = v < low ? (FLOATV)low : v;
        v = v > high ? (FLOATV)high : v;
        STOREV(y, i, v);
    }
    #pragma clang loop vectorize(disable) unroll(disable)
    for (; i < size; ++i) {
        float v = (rereads ? y[i] : x[i] - centre) * factor;
        if (has_scale) v *= scale[own + i / shared];
        if (has_bias) v += bias[own + i / shared];
        v = v < low ? low : v;
        y[i] = v > high ? high : v;
    }
}

static void compute_lines(int group, PARAMETERS) {
    COMPILED_ONCE(count)
    #pragma nounroll
    for (int line = group * span; line < min((group + 1) * span, count); ++line) {
        if (inner == 1) compute_contiguous(line, ARGUMENTS);
        else compute_strided(line, ARGUMENTS);
    }
}

kernel void lines(PARAMETERS) {
    compute_lines(get_global_id(0), ARGUMENTS);
}
