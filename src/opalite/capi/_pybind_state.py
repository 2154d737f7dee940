"""The same names as `opalite.capi.onnxruntime_pybind11_state`, which onnxruntime has in two modules."""

from __future__ import annotations

from .onnxruntime_pybind11_state import *  # noqa: F403
from .onnxruntime_pybind11_state import __all__ as __all__
