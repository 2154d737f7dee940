"""Shape-generic kernels: sizes, windows and expressions are arguments, so that few programs serve all models."""
