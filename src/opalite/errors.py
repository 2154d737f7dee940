"""Every exception that Opalite raises on purpose.

    OpaliteError                 base of all; `except OpaliteError` catches everything below
    ├── ModelError               the model itself is at fault
    │   ├── ModelFormatError     not an ONNX file, truncated, or external data missing
    │   ├── UnsupportedOpError   an operator, domain or version that nothing here can run
    │   └── ShapeError           shapes or types of a node do not fit together
    ├── InputError               what the caller passed to run() or on the command line does not fit
    ├── DeviceError              no device, a device that cannot do what was asked, a failed driver call
    │   ├── NoDeviceError        no OpenCL platform or no device that matches the request
    │   ├── BuildError           an OpenCL program did not compile
    │   └── DeviceMemoryError    the model does not fit the memory of the device, or of the host
    ├── PlacementError           strict mode met a node that would run on the host
    ├── CheckError               a pass left the graph inconsistent (a bug in Opalite; names the pass)
    └── BundleError              an .opal file or a cache entry that cannot be used

A message says which node or file, what was expected, what came, and what to do. Layers above add
a line of context with `add_context`, so that the innermost cause is read first.
"""

from __future__ import annotations

from typing import Self


class OpaliteError(Exception):
    """Base class of every error that Opalite raises on purpose."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def add_context(self, line: str) -> Self:
        """Append one line saying what was being done; returns self for `raise e.add_context(...)`."""
        self.message = f"{self.message}\n  {line}"
        self.args = (self.message,)
        return self

    def __str__(self) -> str:
        return self.message


class ModelError(OpaliteError):
    """The model is at fault."""


class ModelFormatError(ModelError):
    """The bytes are not a complete ONNX model."""


class UnsupportedOpError(ModelError):
    """An operator, domain or version that neither a kernel nor the host can run."""


class ShapeError(ModelError):
    """Shapes, types or attributes of a node do not fit together."""


class InputError(OpaliteError):
    """An argument of the caller does not fit: name, dtype, rank, size or option."""


class DeviceError(OpaliteError):
    """A device cannot do what was asked of it, or its driver failed."""


class NoDeviceError(DeviceError):
    """No OpenCL device matches."""


class BuildError(DeviceError):
    """An OpenCL program did not compile."""


class DeviceMemoryError(DeviceError):
    """A model or tensor is larger than the memory of the device, or of the host."""


class PlacementError(OpaliteError):
    """`strict=True` and a node has no device kernel."""


class CheckError(OpaliteError):
    """A pass left the graph inconsistent."""


class BundleError(OpaliteError):
    """An .opal bundle or cache entry is damaged or of another version."""
