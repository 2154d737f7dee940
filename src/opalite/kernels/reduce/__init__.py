"""Reductions, positions of extremes, running sums, the k largest."""
