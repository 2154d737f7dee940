"""Kernels for normalisation and softmax."""
