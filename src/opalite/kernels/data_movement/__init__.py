"""Kernels that move elements: strided copies, transposes, padding, gather, scatter, layout casts."""
