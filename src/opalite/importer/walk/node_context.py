"""NodeContext: the view of an ONNX node for an importer function, with methods that emit canonical operators.

    @onnx_op("Relu")
    def relu(ctx: NodeContext) -> Value:
        return ctx.elementwise(lambda x: x.call("max", 0), ctx.input(0))

The function returns the outputs in order: one Value, or a sequence with None for unused outputs. An output whose number
of rows depends on data is returned as `ctx.trimmed(padded, count)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from onnx import AttributeProto

from ...errors import ShapeError
from ...expr.expression import Expr
from ...expr.trace_function import Sym, cast_expr, trace, trace_with_sizes
from ...ir.constants.lazy_array import LazyArray, reshaped
from ...ir.constants.quantized_constant import QuantizedConstant
from ...ir.dtype import DType
from ...ir.graph import Value
from ...ir.symbols import always_equal, int_or_symbolic, is_symbolic
from ...ir.tensor_type import TensorType
from ...ops.data_movement import Reshape, Transpose
from ...ops.elementwise import Elementwise
from ...ops.operator import Op
from ..host.onnx_reference import add_host, emit_host
from ..proto.graphdef import Attr, NodeDef
from .graph_builder import Array, CacheUpdate, GraphBuilder

_T = TypeVar("_T")
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


class NodeContext:
    """One ONNX node with typed input Values.

    op_type, domain ('' is ai.onnx), version (opset in force), name, label (for messages), inputs (None if an optional
    input is absent), n_outputs, used (for each output: whether a node reads it).
    """

    def __init__(self, builder: GraphBuilder, node: NodeDef, inputs: Sequence[Value | None]) -> None:
        self._builder = builder
        self._node = node
        self.inputs = list(inputs)
        self.op_type = node.op_type
        self.domain = node.domain
        self.version = node.version
        self.name = node.name
        self.label = node.label
        self.n_outputs = len(node.outputs)
        self.used = node.used

    def record_cache_update(self, result: Value, written: CacheUpdate) -> None:
        """Record that `result` is a cache with an update written into it; it may be updated in place."""
        self._builder.cache_updates[result] = written

    def is_growable_cache(self, cache: Value) -> bool:
        """Whether the cache is in growable memory, which holds all positions appended so far."""
        return cache in self._builder.growable

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

    def uses_output(self, i: int) -> bool:
        """Whether output `i` has a name and a reader."""
        return i < len(self.used) and self.used[i]

    def attr(self, name: str, default: Any = None) -> Any:
        """Return attribute `name` decoded: int, float, str, a tuple of these, ndarray (tensor) or GraphDef (graph)."""
        return self._node.attrs.get(name, default)

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a 0-or-1 attribute as bool; other numbers count as 0, as in onnxruntime."""
        return int(self.attr(name, default)) == 1

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

    # Emitting -------------------------------------------------------------------------------------------------

    def constant(self, array: Any, name: str | None = None) -> Value:
        """Return a constant Value; `array` is not copied, and a LazyArray is not loaded."""
        held = array if isinstance(array, LazyArray) else np.asarray(array)
        return self._builder.constant(held, name or f"{self._out_name}/const")

    def dequantised(self, levels: QuantizedConstant, dtype: DType) -> Value:
        """Return a constant of `dtype` that dequantises `levels` on access."""
        v = self._builder.constant(levels.contents(dtype.np), f"{self._out_name}/const")
        v.levels = levels
        return v

    def scalar(self, value: Any, like: Value | DType) -> Value:
        """Return a constant of shape () with the dtype of `like`."""
        return self.constant(np.asarray(value, (like.dtype if isinstance(like, Value) else like).np))

    def shape_tensor(
        self, numbers: Sequence[Any], dtype: DType = DType.INT64, shape: Sequence[int] | None = None
    ) -> Value:
        """Return a tensor of numbers, some of which may be symbolic: a vector, or of `shape`."""
        if not is_symbolic(tuple(numbers)):
            array = np.array(numbers, dtype.np)
            return self.constant(array if shape is None else array.reshape(shape))
        array = np.empty(len(numbers), object)
        array[:] = numbers
        return self._builder.shape_tensor(
            array.reshape(-1 if shape is None else shape), dtype, f"{self._out_name}/sizes"
        )

    def add(self, op: Op, inputs: Sequence[Value | None]) -> Value:
        """Emit canonical operator `op` after checks and type inference; fold it if all inputs are constant."""
        return self.add_many(op, inputs, 1)[0]

    def add_many(self, op: Op, inputs: Sequence[Value | None], n_outputs: int) -> list[Value]:
        """Emit an operator as `add` does, for its first `n_outputs` outputs."""
        return self._builder.add(
            op, inputs, n_outputs=n_outputs, name=self.name, origin=self.op_type, out_name=self._out_name
        )

    def elementwise(self, fn: Callable[..., Sym], *values: Value, shape: tuple[int, ...] | None = None) -> Value:
        """Trace `fn` over Syms of the values' dtypes and emit it as one Elementwise.

        Numbers in `fn` that depend on sizes become one-element operands.
        """
        if not self._builder.trace.symbols:
            return self.elementwise_expr(trace(fn, *(v.dtype for v in values)), *values, shape=shape)
        expr, sizes = trace_with_sizes(fn, *(v.dtype for v in values))
        operands = [self.shape_tensor([number], dtype, ()) for number, dtype in sizes]
        return self.elementwise_expr(expr, *values, *operands, shape=shape)

    def elementwise_expr(self, expr: Expr, *values: Value, shape: tuple[int, ...] | None = None) -> Value:
        """Emit `expr` over broadcast `values`; `shape` is given if the output is larger than their broadcast."""
        return self.add(Elementwise(expr, shape), values)

    def cast(self, v: Value, dtype: DType) -> Value:
        """Cast `v` to `dtype`, unless it has that dtype."""
        return v if v.dtype is dtype else self.elementwise_expr(cast_expr(v.dtype, dtype), v)

    def reshape(self, v: Value, shape: Sequence[int]) -> Value:
        """Reshape `v`, unless it has that shape."""
        wanted = tuple(int_or_symbolic(d) for d in shape)
        if always_equal(v.shape, wanted):
            return v
        if isinstance(v.held, LazyArray) and v.levels is None and math.prod(wanted) == v.type.count:
            return self._builder.constant(reshaped(v.held, wanted), f"{self._out_name}/const")
        return self.add(Reshape(wanted), [v])

    def transpose(self, v: Value, perm: Sequence[int]) -> Value:
        """Transpose `v` by `perm`, unless `perm` is the identity."""
        order = tuple(int(p) for p in perm)
        if v.levels is not None and order == (1, 0) == tuple(range(len(v.levels.codes.shape)))[::-1]:
            return self.dequantised(replace(v.levels, turned=not v.levels.turned), v.dtype)
        return v if order == tuple(range(len(v.shape))) else self.add(Transpose(order), [v])

    def trimmed(self, value: Value, count: Value) -> Trimmed | Value:
        """Return an output of the first `count` (one integer) rows of `value` along axis 0."""
        rows, array = self._builder.contents(count), self._builder.contents(value)
        if rows is None or array is None:
            return Trimmed(value, count)
        return self.constant(array[: int(rows.reshape(-1)[0])])

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

    def host(self, version: int | None = None, **texts: str) -> list[Value | None]:
        """Emit the ONNX node as a HostOp, or as a task between segments if its shapes depend on data.

        version, texts: run this version of the operator, with string attributes that the node's version lacks.
        """
        added = {name: Attr(AttributeProto.STRING, text) for name, text in texts.items()}
        node = self._node
        if version is not None:
            opsets = {**node.opsets, node.domain: version}
            node = replace(node, version=version, opsets=opsets, attributes={**node.attributes, **added})
        return emit_host(self._builder, node, self.inputs)

    @property
    def _out_name(self) -> str:
        return next((o for o in self._node.outputs if o), self.name)
