"""JSON codec of programs and templates: tagged records for dataclasses, enums, tuples and NumPy scalars.

Arrays are stored apart and referred to by number.
"""

from __future__ import annotations

import base64
import dataclasses
import sys
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from typing import Any

import numpy as np

from ...errors import BundleError
from ...ir.constants.lazy_array import LazyArray
from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.place import Layout, LayoutKind, Place, Target
from ...ir.symbols import Guard, SymbolicFloat, SymbolicInt, Trace, read_expression
from ...ir.tensor_type import TensorType
from .. import control_flow as f
from .. import program as p
from ..memory.liveness import Lifetime
from ..template import shape_tensors as t
from ..template import symbolic_numbers as n
from ..template.program_template import Template
from . import graph_record as g

_OF_MODULES: dict[str, Any] = {
    name: c
    for module in (p, f, g, t, n)
    for name, c in vars(module).items()
    if is_dataclass(c) and c.__module__ == module.__name__
}
_OTHERS = (TensorType, Place, Layout, Template, Lifetime, Guard, DeviceInfo)
_CLASSES: dict[str, type[Any]] = {**_OF_MODULES, **{c.__name__: c for c in _OTHERS}}
_KNOWN_ANYWAY = ("weight_keys",)  # last fields, which are not encoded: the reader of a bundle fills them in
_ENUMS: dict[str, type[Any]] = {"Storage": p.Storage, "Target": Target, "LayoutKind": LayoutKind}


class Encoder:
    """Encoder of a Program or Template as JSON-ready data; its arrays are collected in `arrays`."""

    def __init__(self) -> None:
        self.arrays: list[np.ndarray[Any, Any] | LazyArray] = []

    def encode(self, x: Any) -> Any:
        """JSON-ready form of `x`; TypeError for a type that no Program contains."""
        if isinstance(x, np.generic):  # before Python numbers: np.float64 is a float
            return {"n": [x.dtype.name, x.item()]}
        if type(x) in (SymbolicInt, SymbolicFloat):  # before Python numbers: isinstance(x, int) is true
            return {"s": x.text}
        if x is None or isinstance(x, (bool, int, float, str)):
            return x
        if isinstance(x, DType):
            return {"dt": x.short}
        if type(x).__name__ in _ENUMS:
            return {"e": [type(x).__name__, x.value]}
        if _is_a(x, "opalite.expr.expression", "Expr"):
            return {"x": [str(x), [d.short for d in x.dtypes]]}
        if _is_a(x, "opalite.ops.operator", "Op"):
            return {"o": [x.name, self.encode(x.attributes()), _module_of(x)]}
        if is_dataclass(x) and _class(type(x).__name__) is type(x):
            names = [field.name for field in dataclasses.fields(x) if field.name not in _KNOWN_ANYWAY]
            return {"c": [type(x).__name__, *(self.encode(getattr(x, name)) for name in names)]}
        if isinstance(x, np.ndarray | LazyArray):
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
    """The dataclass `name`. View is imported on use: View is part of `ops`, which few programs need."""
    if name == "View":
        from ...ops.strided_view import View

        return View
    return _CLASSES.get(name)


def _is_a(x: Any, module: str, name: str) -> bool:
    """Whether `x` is an instance of class `name` of `module`, without an import: few programs need these modules."""
    return module in sys.modules and isinstance(x, getattr(sys.modules[module], name))


def _module_of(op: Any) -> str:
    """The module of opalite.ops that defines the operator; '' for an operator of another package."""
    package, _, name = type(op).__module__.rpartition(".")
    return name if package == "opalite.ops" else ""


def decode(data: Any, arrays: Sequence[np.ndarray[Any, Any] | LazyArray], trace: Trace | None = None) -> Any:
    """The inverse of `Encoder.encode`; BundleError for an unknown record. trace: of the symbolic sizes."""
    return _Decoder(arrays, trace).decode(data)


def encode_graphs(
    graphs: Sequence[tuple[g.TraceRecord | None, g.GraphRecord]], flow: f.Flow | None = None
) -> tuple[Any, list[Any]]:
    """Recorded graphs as JSON-ready data, and the arrays to which the data refers. flow: of the graphs' programs."""
    encoder = Encoder()
    encoded = [{"trace": encoder.encode(trace), "graph": encoder.encode(record)} for trace, record in graphs]
    steps = None if flow is None else encoder.encode(dataclasses.replace(flow, programs=()))
    return {"graphs": encoded, "flow": steps}, encoder.arrays


def decode_graphs(data: Any, arrays: Sequence[Any]) -> tuple[list[tuple[Trace | None, g.GraphRecord]], f.Flow | None]:
    """The inverse of `encode_graphs`: (trace, record) of each graph, and the flow without its programs."""
    graphs = []
    for graph in data["graphs"]:
        found = decode(graph["trace"], ())
        trace = None if found is None else g.read_trace(found)
        graphs.append((trace, decode(graph["graph"], arrays, trace)))
    flow = decode(data["flow"], arrays)
    if not isinstance(flow, f.Flow | None):
        raise BundleError("the steps of a bundle are invalid; compile the model again")
    return graphs, flow


class _Decoder:
    """Decoder, written for speed: each start decodes thousands of small records."""

    def __init__(self, arrays: Sequence[np.ndarray[Any, Any] | LazyArray], trace: Trace | None) -> None:
        self._trace = trace
        self._made: dict[str, tuple[Any, tuple[str, ...] | None]] = {}  # class and field names
        self._numbers: dict[str, Any] = {}  # NumPy types by name
        self._by_tag: dict[str, Callable[[Any], Any]] = {
            "c": self._record,
            "t": self._tuple,
            "d": lambda body: {self.decode(k): self.decode(v) for k, v in body},
            "n": self._number,
            "dt": DType.parse,
            "e": lambda body: _ENUMS[body[0]](body[1]),
            "x": self._expression,
            "o": self._operator,
            "a": arrays.__getitem__,
            "b": base64.b64decode,
            "s": self._size,
        }

    def decode(self, data: Any) -> Any:
        kind = type(data)
        if kind is dict:
            for tag, body in data.items():
                made = self._by_tag.get(tag)
                if made is None:
                    raise _unknown(f"record tag {tag!r}")
                return made(body)
            raise BundleError("a record is empty; compile the model again")
        if kind is list:
            return [self.decode(i) if type(i) in _NESTED else i for i in data]
        return data

    def _tuple(self, body: Any) -> tuple[Any, ...]:
        return tuple([self.decode(i) if type(i) in _NESTED else i for i in body])

    def _record(self, body: Any) -> Any:
        name = body[0]
        found = self._made.get(name)
        if found is None:
            found = self._made[name] = _plain_class(name)
        cls, names = found
        values = [self.decode(v) if type(v) in _NESTED else v for v in body[1:]]
        if names is None or len(values) != len(names):
            return cls(*values)
        record = object.__new__(cls)  # __init__ of a frozen dataclass takes three times as long
        record.__dict__.update(zip(names, values, strict=True))
        return record

    def _number(self, body: Any) -> Any:
        kind = self._numbers.get(body[0])
        if kind is None:
            kind = self._numbers[body[0]] = np.dtype(body[0]).type
        return kind(body[1])

    def _size(self, text: str) -> Any:
        if self._trace is None:
            raise BundleError("a size depends on no symbol; compile the model again")
        return read_expression(text, self._trace)

    @staticmethod
    def _expression(body: Any) -> Any:
        from ...expr.parse import parse_expr

        return parse_expr(body[0], [DType.parse(d) for d in body[1]])

    def _operator(self, body: Any) -> Any:
        from ...ops.operator import load_op, make_op

        if len(body) > 2:
            load_op(body[2])  # importing all operators takes a tenth of a start
        return make_op(body[0], self.decode(body[1]))


_NESTED = (dict, list)


def _unknown(what: str) -> BundleError:
    return BundleError(f"{what} is unknown to this version of opalite; compile the model again")


def _plain_class(name: str) -> tuple[Any, tuple[str, ...] | None]:
    """(dataclass of that name, its field names in order, or None if it needs its constructor)."""
    cls = _class(name)
    if cls is None:
        raise _unknown(f"record {name!r}")
    fields = dataclasses.fields(cls)
    has_own = hasattr(cls, "__post_init__") or hasattr(cls, "__slots__")
    is_plain = not has_own and all(field.init for field in fields)
    return cls, tuple(field.name for field in fields) if is_plain else None
