"""Weights of a program: packed forms, files, checksums."""
