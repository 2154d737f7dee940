"""Environment of Intel's CPU runtime for fast compilation."""

from __future__ import annotations

from ... import knobs


def prepare_environment() -> None:
    """Turn off vectorization across work-items, unless the user has set it. Call this before the first OpenCL call.

    Opalite's CPU kernels are vectorized already; the runtime would widen their vectors up to 16 times without gain.
    Without it first runs of six models take a third to a fifth of the CPU time, later ones 0.94 to 1.01 (version
    2026.2, docs/portability.md).
    """
    knobs.default_foreign("CL_CONFIG_CPU_VECTORIZER_MODE", "1")
