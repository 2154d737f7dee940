"""Keeps Intel's CPU runtime quick to compile for."""

from __future__ import annotations

from ... import knobs


def prepare_environment() -> None:
    """Turn off the runtime's vectoriser across work-items. What the user has set stays.

    To be called before the first OpenCL call. The kernels of Opalite have vectors of their own on CPUs, which that
    vectoriser widens up to sixteen times for nothing. Measured with version 2026.2 in processor time: first runs of six
    models take a third to a fifth, steady ones 0.94 to 1.01 (docs/portability.md). GPUs have settings of other names.
    """
    knobs.default_foreign("CL_CONFIG_CPU_VECTORIZER_MODE", "1")
