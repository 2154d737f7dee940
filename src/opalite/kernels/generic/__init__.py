"""Shape-generic kernels of the baseline tier: sizes, windows and expressions are arguments, so few programs serve all."""
