"""Benchmarks: models built in code, adapters of other engines, and the commands that measure them."""
