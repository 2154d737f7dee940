"""Workarounds for PoCL: CPU names, program folders, pruned headers, a linker, checks of process limits.

`cl/` imports this folder; only `megakernel/` imports `cl/`.
"""
