"""The modules of `onnxruntime.capi`, for code written for onnxruntime."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["_pybind_state", "onnxruntime_inference_collection", "onnxruntime_pybind11_state"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module 'opalite.capi' has no attribute {name!r}")
