"""Tiles, cost models and instructions that kernels for NVIDIA's matrix units share."""
