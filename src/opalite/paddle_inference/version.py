"""Versions, as Paddle Inference reports them."""

from __future__ import annotations


def get_version() -> str:
    """Return Opalite's version in the form of Paddle's."""
    from .. import __version__

    return f"version: opalite {__version__}\n"


def get_trt_compile_version() -> tuple[int, int, int]:
    """Return zeros: there is no TensorRT."""
    return (0, 0, 0)


def get_trt_runtime_version() -> tuple[int, int, int]:
    """Return zeros: there is no TensorRT."""
    return (0, 0, 0)
