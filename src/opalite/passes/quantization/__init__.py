"""Passes that choose how quantized operators compute and how weights are stored."""
