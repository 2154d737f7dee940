"""Kernels for plain, depthwise and transposed convolutions, on row-major and channel-packed tensors."""
