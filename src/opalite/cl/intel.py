"""Keeps Intel's CPU runtime quick to compile for."""

from __future__ import annotations

from .. import knobs


def prepare_environment() -> None:
    """Turn off the runtime's vectoriser across work-items. What the user has set stays.

    To be called before the first OpenCL call. The kernels of Opalite have work-groups of one work-item on CPUs and
    vectors of their own, which that vectoriser widens up to sixteen times for nothing. Measured on two cores with
    version 2026.2: MobileNetV2's 14 programs took 12.2 s of processor time to compile and take 1.5, steady runs are as
    fast or faster. GPUs have settings of other names.
    """
    knobs.default_foreign("CL_CONFIG_CPU_VECTORIZER_MODE", "1")
