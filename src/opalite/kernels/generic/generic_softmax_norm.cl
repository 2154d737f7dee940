// Softmax and normalisation of lines of `size` elements, `step` apart.  kind: 0 softmax, 1 its logarithm, 2 normalised by
// mean and variance, 3 by the mean square.  Element i of line l is scaled by scale[(l % period) * per_line + i / shared],
// and then bias is added, where they are there.
// Line l begins at (l / inner) * inner * size + l % inner.
#include "include/no_inline.cl"
#define BLOCK 64 // as in generic_pool_reduce.cl

#define PARAMETERS \
    global const float *x, global const float *scale, global const float *bias, global float *y, \
    int kind, int count, int size, int inner, int has_scale, int has_bias, int period, int per_line, int shared, \
    float epsilon, float low, float high
#define ARGUMENTS \
    x, scale, bias, y, kind, count, size, inner, has_scale, has_bias, period, per_line, shared, epsilon, low, high

static void compute_line(int line, PARAMETERS) {
    COMPILED_ONCE(count)
    if (line >= count) return;
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

kernel void lines(PARAMETERS) {
    compute_line(get_global_id(0), ARGUMENTS);
}
