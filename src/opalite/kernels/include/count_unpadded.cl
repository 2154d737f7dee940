// For average pooling: how many of k positions from `start`, `step` apart, lie in [low, high).
static inline int inside(int start, int step, int k, int low, int high) {
    const int first = start < low ? (low - start + step - 1) / step : 0;
    const int last = start < high ? min(k, (high - start + step - 1) / step) : 0;
    return max(last - first, 0);
}
