"""Programs and templates as JSON: tagged records for dataclasses, enums, tuples, NumPy scalars; arrays have a table."""

from __future__ import annotations

import base64
import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import BundleError
from ..ir.device import DeviceInfo
from ..ir.dtype import DType
from ..ir.place import Layout, LayoutKind, Place, Target
from ..ir.symbols import Guard
from ..ir.types import TensorType
from . import program as p
from .lifetimes import Lifetime
from .report import NodeReport
from .sized_values import SizedLeaf, SizedStep, SizedValues, TypeTerms
from .template import Template
from .terms import MadeTerms, TableTerms, Term, TypedTerm, TypeText

_CLASSES: dict[str, type[Any]] = {
    c.__name__: c
    for c in (
        p.Slot,
        p.Port,
        p.ReservedPort,
        p.SlotArg,
        p.ScalarArg,
        p.LocalArg,
        p.SourceSpec,
        p.LaunchStep,
        p.UploadStep,
        p.DownloadStep,
        p.HostStep,
        p.ReferenceStep,
        p.MemoryReport,
        p.TuningRecord,
        p.Program,
        NodeReport,
        TensorType,
        Place,
        Layout,
        Template,
        SizedLeaf,
        SizedStep,
        SizedValues,
        TypeTerms,
        Term,
        TypedTerm,
        TableTerms,
        MadeTerms,
        TypeText,
        Lifetime,
        Guard,
        DeviceInfo,
    )
}
_KNOWN_ANYWAY = ("weight_keys",)  # the reader of a bundle fills them in; fields without a place, so the last
_ENUMS: dict[str, type[Any]] = {"Storage": p.Storage, "Target": Target, "LayoutKind": LayoutKind}


class Encoder:
    """Turns a Program or a Template into JSON-ready data; arrays met on the way are numbered in `arrays`."""

    def __init__(self) -> None:
        self.arrays: list[np.ndarray[Any, Any]] = []

    def encode(self, x: Any) -> Any:
        """JSON-ready form of `x`; TypeError for a type that no Program holds."""
        if isinstance(x, np.generic):  # before the numbers of Python: np.float64 is a float too
            return {"n": [x.dtype.name, x.item()]}
        if x is None or isinstance(x, (bool, int, float, str)):
            return x
        if isinstance(x, DType):
            return {"dt": x.short}
        if type(x).__name__ in _ENUMS:
            return {"e": [type(x).__name__, x.value]}
        if _is_expression(x):
            return {"x": [str(x), [d.short for d in x.dtypes]]}
        if _is_operator(x):
            return {"o": [x.name, self.encode(x.attributes())]}
        if dataclasses.is_dataclass(x) and _class(type(x).__name__) is type(x):
            values = [self.encode(getattr(x, f.name)) for f in dataclasses.fields(x) if f.name not in _KNOWN_ANYWAY]
            return {"c": [type(x).__name__, *values]}
        if isinstance(x, np.ndarray):
            self.arrays.append(x)
            return {"a": len(self.arrays) - 1}
        if isinstance(x, bytes):
            return {"b": base64.b64encode(x).decode()}
        if isinstance(x, tuple):
            return {"t": [self.encode(i) for i in x]}
        if isinstance(x, list):
            return [self.encode(i) for i in x]
        if isinstance(x, dict):
            return {"d": [[self.encode(k), self.encode(v)] for k, v in x.items()]}
        raise TypeError(f"cannot encode {type(x).__name__}")


def _class(name: str) -> type[Any] | None:
    """The dataclass of that name. View belongs to operators, which are imported only for programs that hold one."""
    if name == "View":
        from ..ops.view import View

        return View
    return _CLASSES.get(name)


def _is_expression(x: Any) -> bool:
    """Whether `x` is an Expr. Only programs with steps on the host hold any; the others do without all operators."""
    if "opalite.ops" not in sys.modules:
        return False
    from ..expr.core import Expr

    return isinstance(x, Expr)


def _is_operator(x: Any) -> bool:
    """Whether `x` is a canonical operator, as steps on the host hold them."""
    if "opalite.ops" not in sys.modules:
        return False
    from ..ops.base import Op

    return isinstance(x, Op)


def decode(data: Any, arrays: Sequence[np.ndarray[Any, Any]]) -> Any:
    """The inverse of `Encoder.encode`; BundleError for a record of an unknown kind."""
    if data is None or isinstance(data, (bool, int, float, str)):
        return data
    if isinstance(data, list):
        return [decode(i, arrays) for i in data]
    (tag, body), *_ = data.items()
    match tag:
        case "c":
            cls = _class(body[0])
            if cls is None:
                raise BundleError(f"record {body[0]!r} is unknown to this version of opalite; compile the model again")
            return cls(*(decode(v, arrays) for v in body[1:]))
        case "t":
            return tuple(decode(i, arrays) for i in body)
        case "d":
            return {decode(k, arrays): decode(v, arrays) for k, v in body}
        case "n":
            return np.dtype(body[0]).type(body[1])
        case "dt":
            return DType.parse(body)
        case "e":
            return _ENUMS[body[0]](body[1])
        case "x":
            from ..expr.text import parse_expr

            return parse_expr(body[0], [DType.parse(d) for d in body[1]])
        case "o":
            from ..ops import make_op

            return make_op(body[0], decode(body[1], arrays))
        case "a":
            return arrays[body]
        case "b":
            return base64.b64decode(body)
    raise BundleError(f"record tag {tag!r} is unknown to this version of opalite; compile the model again")
