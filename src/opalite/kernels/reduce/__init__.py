"""Kernels for reductions, ArgMax and ArgMin, cumulative sums, TopK."""
