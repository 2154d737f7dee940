// y = x * (bias + alpha * sum of squares of the channels c - before to c + behind)^-beta on x[batch, channels, spatial];
// channels outside x count as zero. A work-item computes `each` channels of PACK adjacent positions.
// Generated in front: response_1 and response_PACK, the power with exponent -beta.
// Grid: ceil(spatial / PACK), ceil(channels / each), batch. Epilogue: packed, of a flat output.
#define NORMALIZE(N, STEP)                                                                               \
    for (int c = first; c < last; ++c) {                                                                 \
        const int end = min(c + behind + 1, channels);                                                   \
        VEC_T(ACC, N) sum = (VEC_T(ACC, N))0;                                                            \
        for (int i = max(c - before, 0); i < end; ++i) {                                                 \
            const VEC_T(ACC, N) e = LOADN(N, x, (size_t)i * spatial + s);                                \
            sum += e * e;                                                                                \
        }                                                                                                \
        const size_t at = (size_t)c * spatial + s;                                                       \
        VEC_T(ACC, N) v = LOADN(N, x, at);                                                               \
        v *= CAT(response_, N)(sum * alpha + bias);                                                      \
        v = STEP(v, n, c, s, channels, spatial);                                                         \
        STOREN(N, y, at, v);                                                                             \
    }

kernel void local_response_flat(global const REAL *restrict x, global REAL *restrict y, int batch, int channels,
                                int spatial, int before, int behind, int each, ACC alpha, ACC bias EPILOGUE_PARAMS) {
    const int begin = get_global_id(0) * PACK, stop = min(begin + PACK, spatial), n = get_global_id(2);
    const int first = get_global_id(1) * each, last = min(first + each, channels);
    if (n >= batch) return;
    x += (size_t)n * channels * spatial;
    y += (size_t)n * channels * spatial;
    int s = begin;
#if PACK > 1
    if (begin + PACK <= spatial) {
        NORMALIZE(PACK, EPILOGUE)
        return;
    }
#endif
    for (; s < stop; ++s) {
        NORMALIZE(1, EPILOGUE1)
    }
}
