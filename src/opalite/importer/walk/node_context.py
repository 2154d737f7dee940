"""NodeContext: what an importer function sees of its ONNX node, and how it emits canonical operators.

    @onnx_op("Relu")
    def relu(ctx: NodeContext) -> Value:
        return ctx.elementwise(lambda x: x.call("max", 0), ctx.input(0))

The function returns the node's outputs in order: one Value, or a sequence with None for outputs that are not used.
An output whose size depends on data is given as `ctx.trimmed(padded, count)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from onnx import AttributeProto

from ...errors import ShapeError
from ...expr.expression import Expr
from ...expr.trace_function import Sym, cast_expr, trace, trace_with_sizes
from ...ir.constants.lazy_array import LazyArray, reshaped
from ...ir.constants.quantized_constant import QuantizedConstant
from ...ir.dtype import DType
from ...ir.graph import Value
from ...ir.symbols import always_equal, is_symbolic, same_or_int
from ...ir.tensor_type import TensorType
from ...ops.data_movement import Reshape, Transpose
from ...ops.elementwise import Elementwise
from ...ops.operator import Op
from .graph_builder import Array, GraphBuilder, Written

if TYPE_CHECKING:
    from ..proto.graphdef import NodeDef

_T = TypeVar("_T")


class NeedValue(Exception):  # noqa: N818  (a signal to the walker, not an error)
    """The node can only be imported once the contents of its input `index` are known."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


@dataclass(frozen=True)
class Trimmed:
    """An output whose number of rows depends on data: the first `count` rows of `value`, cut between two segments."""

    value: Value
    count: Value


class NodeContext:
    """One ONNX node with its inputs as Values of concrete type.

    Attributes: op_type, domain ('' is ai.onnx), version (opset version in force), name, label (for messages),
    inputs (None where an optional input is absent), n_outputs, used (for each output: whether anything reads it).
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

    def tell_written(self, result: Value, written: Written) -> None:
        """`result` is a cache with something written into it, which may be done where the cache lies."""
        self._builder.written[result] = written

    def is_growing(self, cache: Value) -> bool:
        """Whether it lies in memory that is reserved for more, so that all that was ever appended to it is in it."""
        return cache in self._builder.growing

    # Inputs and attributes ------------------------------------------------------------------------------------

    def input(self, i: int) -> Value:
        """Input `i`; ShapeError if the node lacks it."""
        v = self.get(i)
        if v is None:
            raise ShapeError(f"{self.label} needs input {i}, but has {len(self.inputs)} inputs or an empty name there")
        return v

    def get(self, i: int) -> Value | None:
        """Input `i`, or None where it is absent."""
        return self.inputs[i] if i < len(self.inputs) else None

    def uses_output(self, i: int) -> bool:
        """Whether output `i` is named by the node and read by anything."""
        return i < len(self.used) and self.used[i]

    def attr(self, name: str, default: Any = None) -> Any:
        """Attribute `name` decoded: int, float, str, tuple of these, ndarray for a tensor, GraphDef for a graph."""
        return self._node.attrs.get(name, default)

    def flag(self, name: str, default: bool = False) -> bool:
        """Attribute `name`, which is 0 or 1; another number counts as 0, as onnxruntime's kernels have it."""
        return int(self.attr(name, default)) == 1

    def const(self, i: int) -> Array:
        """Contents of input `i`. Where they are not known yet the node waits for the next segment (NeedValue).

        Sizes on which they depend are fixed.
        """
        array = self._builder.contents(self.input(i))
        if array is None:
            raise NeedValue(i)
        return array

    def maybe_const(self, i: int) -> Array | None:
        """Contents of input `i` if known, else None."""
        v = self.get(i)
        return None if v is None else v.data

    def const_ints(self, i: int) -> tuple[int, ...]:
        """Contents of input `i` as a flat tuple of integers, which may be Dims."""
        return tuple(same_or_int(x) for x in self.const_numbers(i))

    def const_numbers(self, i: int) -> list[Any]:
        """Contents of input `i` as Python's numbers; those that follow from sizes are Dims and Reals."""
        sizes = self._builder.sized.get(self.input(i))
        if sizes is not None:
            return list(sizes.reshape(-1).tolist())
        return list(self.const(i).reshape(-1).tolist())

    def const_scalar(self, i: int) -> Any:
        """Contents of input `i`, which must hold one element, as a Python number, or as a Dim or Real."""
        numbers = self.const_numbers(i)
        if len(numbers) != 1:
            raise ShapeError(f"{self.label} expects one element in input {i}, got shape {self.input(i).shape}")
        return numbers[0]

    def follows_from_sizes(self, i: int) -> bool:
        """Whether input `i` is absent, a constant, or decided by sizes alone."""
        return self._builder.follows_from_sizes(self.get(i))

    # Emitting -------------------------------------------------------------------------------------------------

    def constant(self, array: Any, name: str | None = None) -> Value:
        """A constant Value; `array` is kept, not copied, and stays where it lies if it is a StoredArray."""
        held = array if isinstance(array, LazyArray) else np.asarray(array)
        return self._builder.constant(held, name or f"{self._out_name}/const")

    def dequantised(self, levels: QuantizedConstant, dtype: DType) -> Value:
        """The constant that `levels` stand for in `dtype`, computed when it is read."""
        v = self._builder.constant(levels.contents(dtype.np), f"{self._out_name}/const")
        v.levels = levels
        return v

    def scalar(self, value: Any, like: Value | DType) -> Value:
        """A constant of shape () with the dtype of `like`."""
        return self.constant(np.asarray(value, (like.dtype if isinstance(like, Value) else like).np))

    def sizes(self, numbers: Sequence[Any], dtype: DType = DType.INT64, shape: Sequence[int] | None = None) -> Value:
        """A tensor of numbers that may be Dims: a vector, or of `shape`."""
        if not is_symbolic(tuple(numbers)):
            array = np.array(numbers, dtype.np)
            return self.constant(array if shape is None else array.reshape(shape))
        array = np.empty(len(numbers), object)
        array[:] = numbers
        return self._builder.sizes(array.reshape(-1 if shape is None else shape), dtype, f"{self._out_name}/sizes")

    def add(self, op: Op, inputs: Sequence[Value | None]) -> Value:
        """Emit canonical operator `op`, checked and inferred; folded at once if all its inputs are constants."""
        return self.add_many(op, inputs, 1)[0]

    def add_many(self, op: Op, inputs: Sequence[Value | None], n_outputs: int) -> list[Value]:
        """As `add`, for the first `n_outputs` outputs of an operator that has several."""
        return self._builder.add(
            op, inputs, n_outputs=n_outputs, name=self.name, origin=self.op_type, out_name=self._out_name
        )

    def elementwise(self, fn: Callable[..., Sym], *values: Value, shape: tuple[int, ...] | None = None) -> Value:
        """Trace `fn` over Syms of the values' dtypes and emit it as one Elementwise.

        Numbers in `fn` that come from sizes become operands of one element.
        """
        if not self._builder.trace.symbols:
            return self.elementwise_expr(trace(fn, *(v.dtype for v in values)), *values, shape=shape)
        expr, sizes = trace_with_sizes(fn, *(v.dtype for v in values))
        operands = [self.sizes([number], dtype, ()) for number, dtype in sizes]
        return self.elementwise_expr(expr, *values, *operands, shape=shape)

    def elementwise_expr(self, expr: Expr, *values: Value, shape: tuple[int, ...] | None = None) -> Value:
        """Emit `expr` over broadcast `values`; `shape` is the output's where the values' broadcast is smaller."""
        return self.add(Elementwise(expr, shape), values)

    def cast(self, v: Value, dtype: DType) -> Value:
        """`v` as `dtype`; `v` itself if it has it already."""
        return v if v.dtype is dtype else self.elementwise_expr(cast_expr(v.dtype, dtype), v)

    def reshape(self, v: Value, shape: Sequence[int]) -> Value:
        """`v` in a shape of as many elements; `v` itself if it has it already."""
        wanted = tuple(same_or_int(d) for d in shape)
        if always_equal(v.shape, wanted):
            return v
        if isinstance(v.held, LazyArray) and v.levels is None and math.prod(wanted) == v.type.count:
            return self._builder.constant(reshaped(v.held, wanted), f"{self._out_name}/const")
        return self.add(Reshape(wanted), [v])

    def transpose(self, v: Value, perm: Sequence[int]) -> Value:
        """`v` with axis `perm[i]` moved to place i; `v` itself if nothing moves."""
        order = tuple(int(p) for p in perm)
        if v.levels is not None and order == (1, 0) == tuple(range(len(v.levels.codes.shape)))[::-1]:
            return self.dequantised(replace(v.levels, turned=not v.levels.turned), v.dtype)
        return v if order == tuple(range(len(v.shape))) else self.add(Transpose(order), [v])

    def trimmed(self, value: Value, count: Value) -> Trimmed | Value:
        """As an output: the first `count` (one integer) rows of `value` along axis 0."""
        rows, array = self._builder.contents(count), self._builder.contents(value)
        if rows is None or array is None:
            return Trimmed(value, count)
        return self.constant(array[: int(rows.reshape(-1)[0])])

    def memo(self, key: str, make: Callable[[Mapping[str, Any]], _T]) -> _T:
        """make(attributes), kept with the node: what follows from attributes alone is the same for every shape."""
        kept = self._node.memo
        if key not in kept:
            kept[key] = make(self._node.attrs)
        found: _T = kept[key]
        return found

    def add_host(
        self, op_type: str, inputs: Sequence[Value | None], types: Sequence[TensorType], reason: str, **attrs: Any
    ) -> list[Value]:
        """Emit a piece of the ONNX node as a HostOp of Opalite's own domain (`host/numpy_ops.py`), folded if it can
        be."""
        from ..host.onnx_reference import add_host

        return add_host(self._builder, self._node, op_type, inputs, types, reason, attrs)

    def host_as(self, types: Sequence[TensorType], reason: str) -> list[Value | None]:
        """Emit the ONNX node as a HostOp whose named outputs have `types`."""
        from ..host.onnx_reference import emit_host

        return emit_host(self._builder, self._node, self.inputs, types, reason)

    def host(self, version: int | None = None, **texts: str) -> list[Value | None]:
        """Emit the ONNX node as a HostOp, or leave it to run between two segments if its shapes depend on data.

        version, texts: it runs as this version of the operator, with attributes that the node's own version lacks.
        """
        from ..host.onnx_reference import emit_host
        from ..proto.graphdef import Attr

        added = {name: Attr(AttributeProto.STRING, text) for name, text in texts.items()}
        node = self._node
        if version is not None:
            opsets = {**node.opsets, node.domain: version}
            node = replace(node, version=version, opsets=opsets, attributes={**node.attributes, **added})
        return emit_host(self._builder, node, self.inputs)

    @property
    def _out_name(self) -> str:
        return next((o for o in self._node.outputs if o), self.name)
