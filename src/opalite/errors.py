"""Every exception that Opalite raises on purpose.

    OpaliteError                 base of all; `except OpaliteError` catches everything below
    ├── ModelError               the model itself is at fault
    │   ├── ModelFormatError     not an ONNX file, truncated, or external data missing
    │   │   └── ModelFileError   there is no such file
    │   ├── UnsupportedOpError   an operator, domain or version that nothing here can run
    │   └── ShapeError           shapes or types of a node do not fit together
    ├── InputError               arguments of run() or of the command line are invalid
    │   ├── MissingInputError    an input that the model needs was not fed (a ValueError)
    │   ├── InputTypeError       an argument has the wrong Python type (a TypeError)
    │   ├── OptionError          an option or provider that is malformed or unknown (a ValueError, a RuntimeError)
    │   └── BindingError         an OrtValue, a binding or a value that makes no tensor (a RuntimeError)
    ├── DeviceError              no device, an unsupported request, or a failed driver call
    │   ├── NoDeviceError        no OpenCL platform or no device that matches the request (a RuntimeError)
    │   ├── BuildError           an OpenCL program did not compile
    │   ├── DeviceMemoryError    the model does not fit the memory of the device, or of the host
    │   └── DeviceLostError      a kernel's fault killed the context and its data
    ├── PlacementError           strict mode found a node that would run on the host
    ├── TerminatedError          RunOptions.terminate was set
    ├── ExtraError               a package of an extra is not installed (an ImportError)
    ├── UnsupportedApiError      a part of onnxruntime's API that Opalite lacks (a NotImplementedError)
    ├── KernelError              a launch's arguments differ from its kernel's declaration (a bug in the kernel)
    ├── PluginError              an operator or kernel of another package is declared wrongly, or failed
    ├── CheckError               a pass left the graph inconsistent (a bug in Opalite; names the pass)
    └── BundleError              an .opal file or a cache entry that cannot be used

Each is also an instance of the class that onnxruntime raises for the same fault (status.py), or of Python's class where
onnxruntime raises that. A message names the node or file, states expected and actual values, and gives advice. Callers
append context by `add_context`, so the cause comes first. Long words, lists and lines are shortened.
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

MAX_WORD, MAX_LIST, MAX_LINE = 260, 28, 2000
"""Limits of messages: characters of a word, items of a list, characters of a line."""

_WORD = rf"(\S{{{MAX_WORD // 2}}})\S{{{MAX_WORD // 2},}}(\S{{{MAX_WORD // 6}}})"
_LIST = rf"((?:[^,\s]+, ?){{12}})(?:[^,\s]+, ?){{{MAX_LIST - 16},}}((?:[^,\s]+, ?){{3}})"


def shorten(text: str) -> str:
    """Shorten long words, lists and lines of `text` by "…"."""
    return "\n".join(map(_shorten_line, text.split("\n"))) if len(text) > MAX_LIST else text


def _shorten_line(line: str) -> str:
    line = _cut(line, 20 * MAX_LINE)  # bounds the patterns' time
    return _cut(re.sub(_LIST, r"\1…, \2", re.sub(_WORD, r"\1…\2", line)), MAX_LINE)


def _cut(line: str, limit: int) -> str:
    return line if len(line) <= limit else f"{line[: limit * 3 // 4]}…{line[-limit // 4 :]}"


class OpaliteError(Exception):
    """Base class of every error that Opalite raises on purpose."""

    def __init__(self, message: str) -> None:
        self.message = shorten(message)
        super().__init__(self.message)

    def add_context(self, line: str) -> Self:
        """Append a line of context; returns self, for `raise e.add_context(...)`."""
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
    """An operator, domain or version that neither a kernel nor the host can run. operator: its domain and name."""

    operator: tuple[str, str] | None = None


class ShapeError(ModelError, InvalidGraph):
    """Shapes, types or attributes of a node do not fit together."""


class InputError(OpaliteError, InvalidArgument):
    """An argument is invalid: name, dtype, rank, size or option."""


class MissingInputError(InputError, ValueError):
    """An input that the model needs was not fed."""


class InputTypeError(InputError, TypeError):
    """An argument has the wrong Python type."""


class OptionError(InputError, ValueError, RuntimeError):
    """An option, or a provider, is malformed or unknown."""


class BindingError(InputError, RuntimeError):
    """An OrtValue or a binding does not fit, or a value cannot be made a tensor."""


class DeviceError(OpaliteError, EPFail, RuntimeException):
    """A device does not support a request, or its driver failed."""


class NoDeviceError(DeviceError, RuntimeError):
    """No OpenCL device matches."""


class BuildError(DeviceError):
    """An OpenCL program did not compile. program: its source and options."""

    program: tuple[str, str] = ("", "")


class DeviceMemoryError(DeviceError):
    """A model or tensor is larger than the memory of the device, or of the host."""


class DeviceLostError(DeviceError):
    """A kernel's fault has killed the context and its data."""


class PlacementError(OpaliteError, Fail):
    """`strict=True` and a node has no device kernel; or no kernel casts a tensor to the layout that another binds."""


class TerminatedError(OpaliteError, Fail):
    """`RunOptions.terminate` stopped a run."""


class UnsupportedApiError(OpaliteError, NotImplemented, NotImplementedError):
    """A part of onnxruntime's API that Opalite lacks; the message has the reason and an alternative."""


class ExtraError(OpaliteError, Fail, ImportError):
    """A package of one of the extras, such as opalite-cl[llm], is not installed; the message names it."""


class KernelError(OpaliteError, EngineError):
    """A launch's arguments differ from the declaration in the kernel's OpenCL source."""


class PluginError(OpaliteError, Fail):
    """An operator or kernel of another package is declared wrongly, or its code failed."""


class CheckError(OpaliteError, EngineError):
    """A pass left the graph inconsistent."""


class BundleError(OpaliteError, InvalidProtobuf):
    """An .opal bundle or cache entry is damaged or of another version."""
