"""Kernels for ai.onnx.ml: tree ensembles, pairwise distances, pairwise coupling of probabilities."""
