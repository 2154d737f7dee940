"""Position of the RNG key argument in the random kernels; the key changes with each run."""

from __future__ import annotations

KEY_ARGUMENTS = {"random_bernoulli": 5, "random_real": 4}
"""Number of the argument with the upper key word, by kernel entry point."""
