"""Kernels for constant low-bit matrices: weight-only and dynamically quantised products, and Gather."""
