"""Kernel launches on a command queue: prepared, recorded and replayed."""
