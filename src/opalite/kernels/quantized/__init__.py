"""Kernels on constant matrices of a few bits, widened in registers."""
