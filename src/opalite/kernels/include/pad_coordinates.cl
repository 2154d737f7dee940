// Coordinate in a tensor of position p, counted from its first element, of a border around it.
//   MODE   0 constant: -1 outside; 1 reflect, 2 edge, 3 wrap, 4 symmetric
static inline int inner(int p, int extent) {
    if (p >= 0 && p < extent) return p;
#if MODE == 0
    return -1;
#elif MODE == 2
    return clamp(p, 0, extent - 1);
#elif MODE == 3
    const int m = p % extent;
    return m < 0 ? m + extent : m;
#elif MODE == 4
    const int period = 2 * extent, q = p % period, m = q < 0 ? q + period : q;
    return m < extent ? m : period - 1 - m;
#else
    const int period = max(2 * (extent - 1), 1), q = p % period, m = q < 0 ? q + period : q;
    return m < extent ? m : period - m;
#endif
}
