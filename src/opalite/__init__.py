"""Opalite: ONNX neural networks on any OpenCL device.

import opalite

session = opalite.InferenceSession("model.onnx", device="gpu")
outputs = session.run(None, {"x": array})
opalite.compile("model.onnx", "model.opal")  # a bundle: starts in half the time, and without onnx
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import (
    BuildError,
    BundleError,
    CheckError,
    DeviceError,
    DeviceMemoryError,
    InputError,
    ModelError,
    ModelFormatError,
    NoDeviceError,
    OpaliteError,
    PlacementError,
    ShapeError,
    UnsupportedOpError,
)

if TYPE_CHECKING:
    from .cl.devices import devices
    from .ir.device import DeviceInfo
    from .run.binding import IOBinding
    from .run.compile import compile_model as compile
    from .run.explain import Explanation
    from .run.ortvalue import OrtValue
    from .run.ports import ModelMetadata, NodeArg
    from .run.session import InferenceSession
    from .run.timing import Timing

    __version__: str

__all__ = [
    "BuildError",
    "BundleError",
    "CheckError",
    "DeviceError",
    "DeviceInfo",
    "DeviceMemoryError",
    "Explanation",
    "IOBinding",
    "InferenceSession",
    "InputError",
    "ModelError",
    "ModelFormatError",
    "ModelMetadata",
    "NoDeviceError",
    "NodeArg",
    "OpaliteError",
    "OrtValue",
    "PlacementError",
    "ShapeError",
    "Timing",
    "UnsupportedOpError",
    "__version__",
    "compile",
    "devices",
]

# Imported at first use: commands that need no kernels start in a fraction of the time.
_LATER = {
    "DeviceInfo": (".ir.device", "DeviceInfo"),
    "Explanation": (".run.explain", "Explanation"),
    "IOBinding": (".run.binding", "IOBinding"),
    "InferenceSession": (".run.session", "InferenceSession"),
    "ModelMetadata": (".run.ports", "ModelMetadata"),
    "NodeArg": (".run.ports", "NodeArg"),
    "OrtValue": (".run.ortvalue", "OrtValue"),
    "Timing": (".run.timing", "Timing"),
    "compile": (".run.compile", "compile_model"),
    "devices": (".cl.devices", "devices"),
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = _version()
    elif name in _LATER:
        module, attribute = _LATER[name]
        value = getattr(import_module(module, __name__), attribute)
    else:
        raise AttributeError(f"module 'opalite' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("opalite")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "0+source"
