"""Kernels on tensors in images of RGBA texels (docs/image2d.md), for any operator."""
