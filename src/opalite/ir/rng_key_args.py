"""Which argument of the random kernels is the upper word of the key, which changes from run to run."""

from __future__ import annotations

KEY_ARGUMENTS = {"random_bernoulli": 5, "random_real": 4}
"""Number of the argument by the kernel's entry. What runs a compiled program knows it without the kernels."""
