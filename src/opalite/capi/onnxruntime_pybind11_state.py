"""The names of onnxruntime's compiled module: its exception classes, and names of `opalite` imported at first use."""

from __future__ import annotations

from typing import Any

import opalite

from .. import status
from ..run.api.options.session_options import SessionOptions
from ..run.api.values.ort_value import OrtValueVector
from ..status import *  # noqa: F403

# Names of `opalite` that onnxruntime's compiled module does not have.
_PYTHON_LAYER = {"IOBinding", "OrtDeviceVendorId", "State", "compile", "preload_dlls", "print_debug_info"}
_OF_PACKAGE = {
    name for name, (module, _) in opalite._LATER.items() if module.startswith((".run.api.", ".run.model."))
} - _PYTHON_LAYER

_STATUSES = [name for name, value in vars(status).items() if isinstance(value, type)]
__all__ = ["OrtValueVector", "get_default_session_options", *_STATUSES, *_OF_PACKAGE]


def get_default_session_options() -> SessionOptions:
    """Options with default values."""
    return SessionOptions()


def __getattr__(name: str) -> Any:
    if name in _OF_PACKAGE:
        return getattr(opalite, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
