// A state rounded to 8 bits, as DynamicQuantizeLinear does it: 256 levels of the range from `low` to `high`, which holds 0.
static inline ACC round_state(ACC v, ACC low, ACC high) {
    const ACC span = (high - low) / (ACC)255, step = span == 0 ? (ACC)1 : span;
    const ACC zero = clamp(rint(-low / step), (ACC)0, (ACC)255);
    return (clamp(rint(v / step) + zero, (ACC)0, (ACC)255) - zero) * step;
}
