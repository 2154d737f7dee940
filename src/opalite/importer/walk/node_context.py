"""NodeContext: the view of an ONNX node for an importer function, which `onnx_op` registers.

    @onnx_op("Relu")
    def relu(ctx: NodeContext) -> Value:
        return ctx.elementwise(lambda x: x.call("max", 0), ctx.input(0))

The function returns the outputs in order: one Value, or a sequence with None for unused outputs. An output whose number
of rows depends on data is returned as `ctx.trimmed(padded, count)`.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, overload

from ...errors import ShapeError, UnsupportedOpError
from ...ir import Array, TensorType, Value
from ...ir.load_plugins import load_plugins
from ...ir.plugins import watch
from ...ir.symbols import int_or_symbolic
from ...ops.model_names import MODEL_NAMES
from ...ops.operator import normalize_axis
from ..host.onnx_reference import add_host, emit_host
from ..proto.graphdef import Attr, NodeDef, plain_domain
from ..proto.op_schemas import PADDLE, TFLITE
from .constant_evaluation import ancestors
from .emitter import Emitter
from .graph_builder import CacheUpdate, GraphBuilder

_OPSET = 21  # of ONNX operators that are parts of other nodes
_T = TypeVar("_T")
_N = TypeVar("_N", bound=int | float | str)
Result = Value | Sequence[Value | None]
"""Return type of importer functions with several outputs."""


class NeedValue(Exception):  # noqa: N818  (a signal to GraphWalk, not an error)
    """Importing the node needs the contents of its input `index`, which are unknown so far."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


@dataclass(frozen=True)
class Trimmed:
    """Output with a data-dependent number of rows: the first `count` rows of `value`, cut by a host task."""

    value: Value
    count: Value


class NodeContext(Emitter):
    """One ONNX node with typed input Values.

    op_type, domain ('' is ai.onnx), version (opset in force), name, label (for messages), inputs (None if an optional
    input is absent), n_outputs, used (for each output: whether a node reads it).
    """

    def __init__(self, builder: GraphBuilder, node: NodeDef, inputs: Sequence[Value | None]) -> None:
        out_name = next((o for o in node.outputs if o), node.name)
        super().__init__(builder, node.name or out_name, node.op_type, out_name)
        self._node = node
        self.inputs = list(inputs)
        self.domain = node.domain
        self.version = node.version
        self.label = node.label
        self.n_outputs = len(node.outputs)
        self.used = node.used

    def reshape_open(self, v: Value, dims: Sequence[int], stated: Sequence[int]) -> Value:
        """Reshape `v` to `dims`, of which one may be -1: it is inferred. stated: the model's dimensions, for errors.

        Raises ShapeError for several -1, and for dimensions that do not fit.
        """
        sizes = list(dims)
        if sizes.count(-1) > 1:
            raise ShapeError(f"{self.label} leaves two dimensions open in {tuple(stated)}")
        if -1 in sizes:
            known = math.prod(d for d in sizes if d != -1)
            if known == 0 or v.type.count % known:
                raise ShapeError(f"{self.label} cannot shape {v.type} as {tuple(stated)}")
            sizes[sizes.index(-1)] = v.type.count // known
        return self.reshape(v, sizes)

    def record_cache_update(self, result: Value, written: CacheUpdate) -> None:
        """Record that `result` is a cache with an update written into it; it may be updated in place."""
        self._builder.cache_updates[result] = written

    def is_growable_cache(self, cache: Value) -> bool:
        """Whether the cache is in growable memory, which holds all positions appended so far."""
        return cache in self._builder.growable

    def refuse_arrays(self, why: str) -> None:
        """Record why growable caches differ from the model's own in more than their place."""
        self._builder.array_refusal = why

    # Inputs and attributes ------------------------------------------------------------------------------------

    def input(self, i: int) -> Value:
        """Return input `i`; ShapeError if it is absent."""
        v = self.get(i)
        if v is None:
            raise ShapeError(f"{self.label} needs input {i}, but has {len(self.inputs)} inputs or an empty name there")
        return v

    def get(self, i: int) -> Value | None:
        """Return input `i`, or None if it is absent."""
        return self.inputs[i] if i < len(self.inputs) else None

    @property
    def present(self) -> list[Value]:
        """All inputs that are given."""
        return [v for v in self.inputs if v is not None]

    def uses_output(self, i: int) -> bool:
        """Whether output `i` has a name and a reader."""
        return i < len(self.used) and self.used[i]

    @overload
    def attr(self, name: str, default: None = None) -> Any: ...
    @overload
    def attr(self, name: str, default: _N) -> _N: ...
    @overload
    def attr(self, name: str, default: tuple[Any, ...]) -> Any: ...
    def attr(self, name: str, default: Any = None) -> Any:
        """Return attribute `name` decoded: int, float, str, a tuple of these, ndarray (tensor) or GraphDef (graph).

        A number or a string is converted to the type of its default.
        """
        found = self._node.attrs.get(name, default)
        return type(default)(found) if type(default) in (bool, int, float, str) else found

    def choice(self, name: str, default: str, known: Iterable[str]) -> str:
        """Return string attribute `name`; UnsupportedOpError unless it is one of `known`."""
        found = self.attr(name, default)
        if found not in known:
            raise UnsupportedOpError(f"{self.label} has {name} '{found}'; known are {', '.join(filter(None, known))}")
        return found

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a 0-or-1 attribute as bool; other numbers count as 0, as in onnxruntime."""
        return int(self._node.attrs.get(name, default)) == 1

    def ints_of(self, name: str, index: int, input_since: int) -> tuple[int, ...] | None:
        """Read integers: attribute `name` before version `input_since`, input `index` from then on; None if absent."""
        if self.version >= input_since:
            return None if self.get(index) is None else self.const_ints(index)
        found = self.attr(name, None)
        return None if found is None else tuple(int(v) for v in found)

    def ints(self, name: str, default: Sequence[int]) -> tuple[int, ...]:
        """Return an INTS attribute as a tuple."""
        return tuple(int(v) for v in self._node.attrs.get(name, default))

    def axis_of(self, rank: int, default: int, name: str = "axis") -> int:
        """Return an axis attribute, counted from the front."""
        return normalize_axis(self.attr(name, default), rank, name)

    def const(self, i: int) -> Array:
        """Return the contents of input `i`; NeedValue defers the node if they are unknown.

        Sizes that determine the contents become static.
        """
        array = self._builder.contents(self.input(i))
        if array is None:
            raise NeedValue(i)
        return array

    def maybe_const(self, i: int) -> Array | None:
        """Return the contents of input `i` if known, else None."""
        v = self.get(i)
        return None if v is None else v.data

    def const_ints(self, i: int) -> tuple[int, ...]:
        """Return the contents of input `i` as a flat tuple of integers, some of which may be SymbolicInts."""
        return tuple(int_or_symbolic(x) for x in self.const_numbers(i))

    def const_numbers(self, i: int) -> list[Any]:
        """Return the contents of input `i` as Python numbers; numbers that depend on sizes are symbolic."""
        sizes = self._builder.shape_tensors.get(self.input(i))
        if sizes is not None:
            return list(sizes.reshape(-1).tolist())
        return list(self.const(i).reshape(-1).tolist())

    def const_scalar(self, i: int) -> Any:
        """Return the one element of input `i` as a Python number or a symbolic number."""
        numbers = self.const_numbers(i)
        if len(numbers) != 1:
            raise ShapeError(f"{self.label} expects one element in input {i}, got shape {self.input(i).shape}")
        return numbers[0]

    def follows_from_sizes(self, i: int) -> bool:
        """Whether input `i` is absent, constant, or determined by sizes alone."""
        return self._builder.follows_from_sizes(self.get(i))

    @property
    def parts(self) -> tuple[GraphBuilder, NodeDef, Sequence[Value | None]]:
        """The arguments of a context for the same node."""
        return self._builder, self._node, self.inputs

    # Results --------------------------------------------------------------------------------------------------

    def trimmed(self, value: Value, count: Value) -> Trimmed | Value:
        """Return an output of the first `count` (one integer) rows of `value` along axis 0."""
        rows, array = self._builder.contents(count), self._builder.contents(value)
        if rows is None or array is None:
            return Trimmed(value, count)
        return self.constant(array[: int(rows.reshape(-1)[0])])

    def onnx(
        self, op_type: str, inputs: Sequence[Value | None], n_outputs: int = 1, **attrs: Any
    ) -> list[Value | Trimmed | None]:
        """Emit an ONNX operator as a part of this node, by its importer function; inputs may be values made here."""
        names = tuple(f"{self._out_name}/{op_type}.{i}" for i in range(n_outputs))
        attributes = {k: Attr(0, v) for k, v in attrs.items()}
        node = NodeDef(op_type, "", _OPSET, self.name, (), names, attributes, used=(True,) * n_outputs)
        part = NodeContext(self._builder, node, inputs)
        part.label, part._out_name = self.label, self._out_name
        handler = find_handler(op_type, "", _OPSET)
        assert handler is not None, f"nothing imports {op_type}"
        try:
            found = handler(part)
        except NeedValue as e:
            own = self._source_of(part.inputs[e.index])
            if own is None:
                raise UnsupportedOpError(f"{self.label} needs contents that depend on data ({op_type})") from e
            raise NeedValue(own) from e
        return [found] if isinstance(found, (Value, Trimmed)) else list(found)

    def _source_of(self, value: Value | None) -> int | None:
        """Return the number of the input that `value` is, or else is computed from; None if there is none."""
        if value is None:
            return None
        behind = {value, *(v for node in ancestors([value]) for v in node.inputs)}
        return next((i for i, v in enumerate(self.inputs) if v in behind and v is not None and not v.is_const), None)

    def memo(self, key: str, make: Callable[[Mapping[str, Any]], _T]) -> _T:
        """Return make(attributes), cached with the node for all input shapes."""
        kept = self._node.memo
        if key not in kept:
            kept[key] = make(self._node.attrs)
        found: _T = kept[key]
        return found

    def add_host(
        self, op_type: str, inputs: Sequence[Value | None], types: Sequence[TensorType], reason: str, **attrs: Any
    ) -> list[Value]:
        """Emit a part of the ONNX node as HostOp of domain 'opalite' (`host/numpy_ops.py`); fold it if possible."""
        return add_host(self._builder, self._node, op_type, inputs, types, reason, attrs)

    def host_as(self, types: Sequence[TensorType], reason: str) -> list[Value | None]:
        """Emit the ONNX node as a HostOp; `types` are those of its named outputs."""
        return emit_host(self._builder, self._node, self.inputs, types, reason)

    def host(self) -> list[Value | None]:
        """Emit the ONNX node as a HostOp, or as a task between segments if its shapes depend on data."""
        return emit_host(self._builder, self._node, self.inputs)


# Registry

Handler = Callable[[NodeContext], Value | Trimmed | Sequence[Value | Trimmed | None]]
_H = TypeVar("_H", bound=Handler)

_FOLDERS = ("onnx", "ml", "microsoft")  # of importer functions
_FORMATS = {TFLITE: "tflite", PADDLE: "paddle"}  # folders by domain, for the operators of other formats
_HANDLERS: dict[tuple[str, str], dict[int, Handler]] = {}
watch(lambda: [handler for versions in _HANDLERS.values() for handler in versions.values()])


def onnx_op(*names: str, since: int = 1, domain: str = "") -> Callable[[_H], _H]:
    """Decorate the function that imports operators of `domain` from opset `since` to the next registered one."""

    def register(handler: _H) -> _H:
        for name in names:
            versions = _HANDLERS.setdefault((plain_domain(domain), name), {})
            if since in versions:
                raise ValueError(f"ONNX operator {name} since {since} is registered twice")
            versions[since] = handler
        return handler

    return register


def find_handler(op_type: str, domain: str, version: int) -> Handler | None:
    """Find the newest importer function with `since` <= `version`; None if the operator has none."""
    load_handlers(_FORMATS.get(domain, ""))
    load_plugins()
    versions = _HANDLERS.get((domain, op_type))
    if versions is None:
        versions = dict.fromkeys(MODEL_NAMES.get((domain, op_type), ()), _import_registered)
    since = max((s for s in versions if s <= version), default=None)
    return None if since is None else versions[since]


def _import_registered(ctx: NodeContext) -> Value | Trimmed | Sequence[Value | Trimmed | None]:
    """Import an operator of another package."""
    from .registered_operators import import_registered  # few models have one

    return import_registered(ctx)


@contextmanager
def provisional_handlers() -> Iterator[Callable[[str, str, Handler], bool]]:
    """A function that imports operators of a domain and name by a handler, and says whether it is the first to do so.

    At the end of the block they are as unknown as before.
    """
    made: list[tuple[str, str]] = []

    def provide(domain: str, name: str, handler: Handler) -> bool:
        if (domain, name) in _HANDLERS:
            return False
        _HANDLERS[domain, name] = {1: handler}
        made.append((domain, name))
        return True

    try:
        yield provide
    finally:
        for key in made:
            del _HANDLERS[key]


def handled_ops() -> dict[tuple[str, str], list[int]]:
    """List the importer functions: (domain, name) of each operator and the opset versions at which they start."""
    load_handlers()
    return {key: sorted(versions) for key, versions in _HANDLERS.items()}


@cache
def load_handlers(folder: str = "") -> None:
    """Import every operator module of a format's folder, or of ONNX's, so that its functions register themselves."""
    for name in [folder] if folder else _FOLDERS:
        for module in sorted(m.name for m in pkgutil.iter_modules([str(Path(__file__).parents[1] / name)])):
            importlib.import_module(f"..{name}.{module}", __package__)
