"""Every exception that Opalite raises on purpose.

    OpaliteError                 base of all; `except OpaliteError` catches everything below
    ├── ModelError               the model itself is at fault
    │   ├── ModelFormatError     not an ONNX file, truncated, or external data missing
    │   │   └── ModelFileError   there is no such file
    │   ├── UnsupportedOpError   an operator, domain or version that nothing here can run
    │   └── ShapeError           shapes or types of a node do not fit together
    ├── InputError               what the caller passed to run() or on the command line does not fit
    │   ├── MissingInputError    an input that the model needs was not fed (a ValueError)
    │   ├── InputTypeError       an argument is of another Python type than the call takes (a TypeError)
    │   ├── OptionError          an option or provider that is malformed or unknown (a ValueError, a RuntimeError)
    │   └── BindingError         an OrtValue, a binding or a value that makes no tensor (a RuntimeError)
    ├── DeviceError              no device, a device that cannot do what was asked, a failed driver call
    │   ├── NoDeviceError        no OpenCL platform or no device that matches the request (a RuntimeError)
    │   ├── BuildError           an OpenCL program did not compile
    │   ├── DeviceMemoryError    the model does not fit the memory of the device, or of the host
    │   └── DeviceLostError      what lay on the device is gone, for a kernel's fault ended the process's use of it
    ├── PlacementError           strict mode met a node that would run on the host
    ├── TerminatedError          RunOptions.terminate was set
    ├── ExtraError               a package of an extra is not installed (an ImportError)
    ├── UnsupportedApiError      a part of onnxruntime's API that Opalite does not offer (a NotImplementedError)
    ├── KernelError              a launch's arguments are not those that its kernel declares (a bug in the kernel)
    ├── CheckError               a pass left the graph inconsistent (a bug in Opalite; names the pass)
    └── BundleError              an .opal file or a cache entry that cannot be used

Each is also an instance of the class that onnxruntime raises for the same fault (status.py), and of Python's own where
onnxruntime raises that. A message says which node or file, what was expected, what came, and what to do. Layers above
add a line of context with `add_context`, so that the innermost cause is read first. Names, lists and lines that are too
long to be read are shortened in every message.
"""

from __future__ import annotations

import re
from typing import Self

from .status import (
    EngineError,
    EPFail,
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    NoSuchFile,
    NotImplemented,
    RuntimeException,
)

LONGEST_WORD, LONGEST_LIST, LONGEST_LINE = 260, 28, 2000
"""Characters of a word, items of a list and characters of a line that messages show in full."""

_WORD = re.compile(rf"(\S{{{LONGEST_WORD // 2}}})\S{{{LONGEST_WORD // 2},}}(\S{{{LONGEST_WORD // 6}}})")
_LIST = re.compile(rf"((?:[^,\s]+, ?){{12}})(?:[^,\s]+, ?){{{LONGEST_LIST - 16},}}((?:[^,\s]+, ?){{3}})")


def shorten(text: str) -> str:
    """`text` with "…" in the place of what makes a word, a list or a line too long to be read."""
    return "\n".join(map(_shorten_line, text.split("\n"))) if len(text) > LONGEST_LIST else text


def _shorten_line(line: str) -> str:
    line = _cut(line, 20 * LONGEST_LINE)  # so that the patterns look at little
    return _cut(_LIST.sub(r"\1…, \2", _WORD.sub(r"\1…\2", line)), LONGEST_LINE)


def _cut(line: str, most: int) -> str:
    return line if len(line) <= most else f"{line[: most * 3 // 4]}…{line[-most // 4 :]}"


class OpaliteError(Exception):
    """Base class of every error that Opalite raises on purpose."""

    def __init__(self, message: str) -> None:
        self.message = shorten(message)
        super().__init__(self.message)

    def add_context(self, line: str) -> Self:
        """Append one line saying what was being done; returns self for `raise e.add_context(...)`."""
        self.message = f"{self.message}\n  {shorten(line)}"
        self.args = (self.message,)
        return self

    def __str__(self) -> str:
        return self.message


class ModelError(OpaliteError, Fail):
    """The model is at fault."""


class ModelFormatError(ModelError, InvalidProtobuf, InvalidGraph, InvalidArgument):
    """The bytes are not a complete ONNX model."""


class ModelFileError(ModelFormatError, NoSuchFile):
    """There is no such file."""


class UnsupportedOpError(ModelError, InvalidGraph, NotImplemented):
    """An operator, domain or version that neither a kernel nor the host can run."""


class ShapeError(ModelError, InvalidGraph):
    """Shapes, types or attributes of a node do not fit together."""


class InputError(OpaliteError, InvalidArgument):
    """An argument of the caller does not fit: name, dtype, rank, size or option."""


class MissingInputError(InputError, ValueError):
    """An input that the model needs was not fed."""


class InputTypeError(InputError, TypeError):
    """An argument is of another Python type than the call takes."""


class OptionError(InputError, ValueError, RuntimeError):
    """An option, or a provider, is malformed or unknown."""


class BindingError(InputError, RuntimeError):
    """An OrtValue or a binding does not fit, or a value cannot be made a tensor."""


class DeviceError(OpaliteError, EPFail, RuntimeException):
    """A device cannot do what was asked of it, or its driver failed."""


class NoDeviceError(DeviceError, RuntimeError):
    """No OpenCL device matches."""


class BuildError(DeviceError):
    """An OpenCL program did not compile. program: its source and options."""

    program: tuple[str, str] = ("", "")


class DeviceMemoryError(DeviceError):
    """A model or tensor is larger than the memory of the device, or of the host."""


class DeviceLostError(DeviceError):
    """A kernel's fault has ended this process's use of the device, and with it what lay there."""


class PlacementError(OpaliteError, Fail):
    """`strict=True` and a node has no device kernel; or no kernel casts a tensor to the layout that another binds."""


class TerminatedError(OpaliteError, Fail):
    """A run was called off by `RunOptions.terminate`."""


class UnsupportedApiError(OpaliteError, NotImplemented, NotImplementedError):
    """A part of onnxruntime's API that Opalite does not offer; the message says why, and what there is instead."""


class ExtraError(OpaliteError, Fail, ImportError):
    """A package of one of the extras, such as opalite-cl[llm], is not installed; the message says what to install."""


class KernelError(OpaliteError, EngineError):
    """A launch's arguments are not those that the kernel's OpenCL source declares."""


class CheckError(OpaliteError, EngineError):
    """A pass left the graph inconsistent."""


class BundleError(OpaliteError, InvalidProtobuf):
    """An .opal bundle or cache entry is damaged or of another version."""
