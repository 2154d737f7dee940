"""Kernels for pooling over windows."""
