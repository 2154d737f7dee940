// p[rows, K] from r[rows, K (K - 1) / 2], the probability of class i against class j for pairs i < j: coordinate descent,
// see ops/pairwise_distance.py. Grid: rows.
#define PAIRS (K * (K - 1) / 2)
// How probable class i is against class j.
#define AGAINST(i, j) ((i) < (j) ? LOAD(r, PAIR(i, j)) : (ACC)1 - LOAD(r, PAIR(j, i)))
#define PAIR(i, j) ((i) * (2 * K - (i) - 1) / 2 + (j) - (i) - 1)
#define Q(t, j) ((t) == (j) ? diagonal[t] : -AGAINST(j, t) * AGAINST(t, j))

kernel void pairwise_coupling(global const REAL *r, global REAL *y, int rows, int rounds) {
    const int n = get_global_id(0);
    if (n >= rows) return;
    r += (size_t)n * PAIRS;
    ACC p[K], gradient[K], diagonal[K];
    for (int t = 0; t < K; ++t) {
        p[t] = (ACC)1 / K;
        diagonal[t] = 0;
        for (int j = 0; j < K; ++j) {
            if (j != t) diagonal[t] += AGAINST(j, t) * AGAINST(j, t);
        }
    }
    for (int round_ = 0; round_ < rounds; ++round_) {
        ACC mean = 0, apart = 0;
        for (int t = 0; t < K; ++t) {
            gradient[t] = 0;
            for (int j = 0; j < K; ++j) gradient[t] += Q(t, j) * p[j];
            mean += p[t] * gradient[t];
        }
        for (int t = 0; t < K; ++t) apart = fmax(apart, fabs(gradient[t] - mean));
        if (apart < (ACC)0.005 / K) break;
        for (int t = 0; t < K; ++t) {
            const ACC step = (mean - gradient[t]) / diagonal[t], whole = 1 + step;
            p[t] += step;
            mean = (mean + step * (step * diagonal[t] + 2 * gradient[t])) / whole / whole;
            for (int j = 0; j < K; ++j) {
                gradient[j] = (gradient[j] + step * Q(t, j)) / whole;
                p[j] /= whole;
            }
        }
    }
    for (int t = 0; t < K; ++t) STORE(y, (size_t)n * K + t, p[t]);
}
