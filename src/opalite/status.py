"""Exception classes of onnxruntime's API, one for each status code.

Code for onnxruntime catches them from `opalite.capi.onnxruntime_pybind11_state`. Opalite raises subclasses (errors.py).
"""

from __future__ import annotations


class Fail(Exception):
    """Code 1: a failure that no other code describes."""


class InvalidArgument(Exception):
    """Code 2: a feed, a name or an option does not fit."""


class NoSuchFile(Exception):
    """Code 3: the model's file does not exist."""


class NoModel(Exception):
    """Code 4: no model is loaded."""


class EngineError(Exception):
    """Code 5: the engine is at fault."""


class RuntimeException(Exception):
    """Code 6: something failed while a model ran."""


class InvalidProtobuf(Exception):
    """Code 7: the bytes are no ONNX model."""


class ModelLoaded(Exception):
    """Code 8: a model is loaded already."""


class NotImplemented(Exception):
    """Code 9: an operator, or a part of the API, that the engine lacks."""


class InvalidGraph(Exception):
    """Code 10: the graph breaks ONNX's rules."""


class EPFail(Exception):
    """Code 11: an execution provider, that is a device, failed."""


class ModelLoadCanceled(Exception):
    """Code 12: loading was canceled."""


class ModelRequiresCompilation(Exception):
    """Code 13: the model must be compiled before it can be loaded."""


class NotFound(Exception):
    """Code 14: the requested object does not exist."""


class DeviceReset(Exception):
    """Code 15: the device was reset while it worked."""
