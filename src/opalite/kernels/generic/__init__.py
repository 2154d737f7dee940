"""Kernels that take sizes, windows and expressions as arguments: a few programs for all models."""
