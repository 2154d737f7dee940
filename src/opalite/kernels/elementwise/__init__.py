"""Kernels for elementwise expressions and random numbers."""
