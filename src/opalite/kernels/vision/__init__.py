"""Kernels for resizing, grid sampling, regions of interest and non-maximum suppression."""
