"""Kernels on tensors that lie in images of RGBA texels (docs/image2d.md), whatever the operator."""
