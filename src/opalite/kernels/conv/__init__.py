"""Convolutions, plain, depthwise and transposed, on row-major and on channel-packed tensors."""
