"""Emitter: methods that append canonical operators to a graph: constants, reshapes, slices, products, reductions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...expr.expression import Expr
from ...expr.trace_function import Sym, call, cast_expr, trace, trace_with_sizes
from ...ir import Array, DType, Value
from ...ir.constants.lazy_array import LazyArray, reshaped
from ...ir.constants.quantized_constant import QuantizedConstant
from ...ir.symbols import always_equal, int_or_symbolic, is_symbolic
from ...ops.data_movement import Concat, Pad, Reshape, Slice, Transpose
from ...ops.elementwise import Elementwise
from ...ops.gather import Gather
from ...ops.integer_conv_matmul import IntegerMatMul
from ...ops.matmul import MatMul
from ...ops.operator import Op, broadcast_shape, normalize_axis
from ...ops.reduce import Reduce
from ...ops.softmax import Softmax
from .graph_builder import GraphBuilder

MAX_OPERANDS = 8
"""Largest number of operands of one Elementwise: its kernel has one pointer argument for each."""


def default_element(dtype: DType) -> Any:
    """Return the default element: zero, or the empty string."""
    return "" if dtype is DType.STRING else 0


def positive_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return axes counted from the front, sorted; ShapeError for duplicates."""
    found = tuple(sorted(normalize_axis(int(a), rank) for a in axes))
    if len(set(found)) != len(found):
        raise ShapeError(f"axes {tuple(axes)} name an axis twice")
    return found


def _with_absent(fn: Callable[..., Sym], absent: Sequence[bool]) -> Callable[..., Sym]:
    """Return `fn` as a function of the present operands only."""

    def traced(*operands: Sym) -> Sym:
        rest = iter(operands)
        return fn(*(None if gone else next(rest) for gone in absent))

    return traced


class Emitter:
    """Appends operators that compute one ONNX node; name, op_type: of that node, out_name: of its first output."""

    def __init__(self, builder: GraphBuilder, name: str, op_type: str, out_name: str) -> None:
        self._builder = builder
        self.name = name
        self.op_type = op_type
        self._out_name = out_name

    def constant(self, array: Any, name: str | None = None) -> Value:
        """Return a constant Value; `array` is not copied, and a LazyArray is not loaded."""
        held = array if isinstance(array, LazyArray) else np.asarray(array)
        return self._builder.constant(held, name or f"{self._out_name}/const")

    def dequantised(self, levels: QuantizedConstant, dtype: DType) -> Value:
        """Return a constant of `dtype` that dequantises `levels` on access."""
        v = self._builder.constant(levels.contents(dtype.np), f"{self._out_name}/const")
        v.quantized = levels
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

    def elementwise(self, fn: Callable[..., Sym], *values: Value | None, shape: tuple[int, ...] | None = None) -> Value:
        """Trace `fn` with one Sym for each value (None for an absent one); emit the expression as one Elementwise.

        Numbers in the expression that depend on sizes become one-element operands.
        """
        present = [v for v in values if v is not None]
        if len(present) < len(values):
            fn = _with_absent(fn, [v is None for v in values])
        if not self._builder.trace.symbols:
            return self.elementwise_expr(trace(fn, *(v.dtype for v in present)), *present, shape=shape)
        expr, sizes = trace_with_sizes(fn, *(v.dtype for v in present))
        operands = [self.shape_tensor([number], dtype, ()) for number, dtype in sizes]
        return self.elementwise_expr(expr, *present, *operands, shape=shape)

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
        if isinstance(v.lazy_data, LazyArray) and v.quantized is None and math.prod(wanted) == v.type.count:
            return self._builder.constant(reshaped(v.lazy_data, wanted), f"{self._out_name}/const")
        return self.add(Reshape(wanted), [v])

    def transpose(self, v: Value, perm: Sequence[int]) -> Value:
        """Transpose `v` by `perm`, unless `perm` is the identity."""
        order = tuple(int(p) for p in perm)
        if v.quantized is not None and order == (1, 0) == tuple(range(len(v.quantized.codes.shape)))[::-1]:
            return self.dequantised(replace(v.quantized, turned=not v.quantized.turned), v.dtype)
        return v if order == tuple(range(len(v.shape))) else self.add(Transpose(order), [v])

    # Shapes

    def unsqueeze(self, v: Value, axes: Sequence[int]) -> Value:
        """Insert dimensions of 1 at `axes` of the result."""
        rank = len(v.shape) + len(axes)
        where = positive_axes(axes, rank)
        rest = iter(v.shape)
        return self.reshape(v, tuple(1 if i in where else next(rest) for i in range(rank)))

    def squeeze(self, v: Value, axes: Sequence[int]) -> Value:
        """Remove the dimensions of 1 at `axes`."""
        where = positive_axes(axes, len(v.shape))
        for a in where:
            if v.shape[a] != 1:
                raise ShapeError(f"axis {a} of {v.type} cannot be squeezed: its size is not 1")
        return self.reshape(v, tuple(d for i, d in enumerate(v.shape) if i not in where))

    def along_axis(self, v: Value, axis: int, rank: int) -> Value:
        """Reshape a vector to `rank` so that it broadcasts along every axis but `axis`; a scalar gets one element."""
        if len(v.shape) > 1:
            raise ShapeError(f"expected a scalar or a vector for axis {axis}, got {v.type}")
        if math.prod(v.shape) == 1:
            return self.reshape(v, (1,) * rank)
        return self.reshape(v, tuple(v.shape[0] if i == axis else 1 for i in range(rank)))

    def expand(self, v: Value, shape: Sequence[int]) -> Value:
        """Broadcast `v` and `shape` against each other, as NumPy does."""
        target = broadcast_shape([v.shape, tuple(shape)])
        if target == v.shape:
            return v
        return self.elementwise_expr(Expr((), (v.dtype,)), v, shape=target)

    def slice_axis(self, v: Value, axis: int, start: int, stop: int, step: int = 1) -> Value:
        """Return v[..., start:stop:step, ...] along one axis; start and stop count from the front, step is positive."""
        size = max(0, -(-(stop - start) // step))
        if step == 1 and always_equal((start, size), (0, v.shape[axis])):
            return v
        rank = len(v.shape)
        return self.add(
            Slice(
                starts=tuple(start if i == axis else 0 for i in range(rank)),
                steps=tuple(step if i == axis else 1 for i in range(rank)),
                sizes=tuple(size if i == axis else d for i, d in enumerate(v.shape)),
            ),
            [v],
        )

    def split_axis(self, v: Value, axis: int, sizes: Sequence[int]) -> list[Value]:
        """Split `v` into consecutive pieces of `sizes` along `axis`."""
        if sum(sizes) != v.shape[axis]:
            raise ShapeError(f"pieces {tuple(sizes)} do not add up to axis {axis} of {v.type}")
        starts = [sum(sizes[:i]) for i in range(len(sizes))]
        return [self.slice_axis(v, axis, a, a + n) for a, n in zip(starts, sizes, strict=True)]

    def concat(self, values: Sequence[Value], axis: int) -> Value:
        """Concatenate the values along `axis`."""
        return values[0] if len(values) == 1 else self.add(Concat(axis=axis), list(values))

    def pad_zeros(self, v: Value, pads: Sequence[int], value: float | int = 0) -> Value:
        """Pad with a constant; `pads` holds the begin of every axis, then the end of every axis."""
        if not any(pads):
            return v
        return self.add(Pad(pads=tuple(int_or_symbolic(p) for p in pads), mode="constant", value=value), [v])

    def swap_axes(self, v: Value, a: int, b: int) -> Value:
        """Exchange two axes of `v`."""
        perm = list(range(len(v.shape)))
        perm[a], perm[b] = perm[b], perm[a]
        return v if a == b else self.transpose(v, tuple(perm))

    def split_heads(self, v: Value, heads: int) -> Value:
        """Reshape [B, S, H*D] to [B, H, S, D]."""
        if len(v.shape) != 3 or v.shape[2] % heads:
            raise ShapeError(f"expected [batch, sequence, {heads} heads * size], got {v.type}")
        b, s, width = v.shape
        return self.transpose(self.reshape(v, (b, s, heads, width // heads)), (0, 2, 1, 3))

    def merge_heads(self, v: Value) -> Value:
        """Reshape [B, H, S, D] to [B, S, H*D]."""
        b, h, s, d = v.shape
        return self.reshape(self.transpose(v, (0, 2, 1, 3)), (b, s, h * d))

    def gather(self, v: Value, indices: Value, axis: int) -> Value:
        """Emit NumPy's take along one axis."""
        return self.add(Gather(axis=axis), [v, indices])

    def take(self, v: Value, positions: Array, axis: int) -> Value:
        """Take `v` at constant positions along `axis`; `positions` may have any shape."""
        return self.gather(v, self.constant(positions.astype(np.int64)), axis)

    # Arithmetic

    def full(self, value: Any, dtype: DType, shape: Sequence[int]) -> Value:
        """Return a tensor of `shape` filled with `value`."""
        if is_symbolic(tuple(shape)):
            return self.expand(self.scalar(value, dtype), shape)
        return self.constant(np.full(tuple(shape), value, dtype.np))

    def unary(self, fn: str, v: Value) -> Value:
        """Apply an Expr function of one argument to each element."""
        return self.elementwise_expr(call(fn, v.dtype), v)

    def binary(self, fn: str, a: Value, b: Value) -> Value:
        """Apply an Expr function of two arguments to broadcast values of equal dtype."""
        return self.elementwise_expr(call(fn, a.dtype, b.dtype), a, b)

    def plus(self, a: Value, b: Value | None) -> Value:
        """Return a + b, or `a` if b is absent."""
        return a if b is None else self.elementwise(lambda x, y: x + y, a, b)

    def chain(self, fn: str, values: Sequence[Value | None]) -> Value:
        """Emit fn(fn(v0, v1), v2)... over any number of values; absent ones are skipped."""
        result, *rest = (v for v in values if v is not None)
        while rest:
            now, rest = rest[: MAX_OPERANDS - 1], rest[MAX_OPERANDS - 1 :]

            def fold(first: Sym, *others: Sym) -> Sym:
                for o in others:
                    first = first.call(fn, o)
                return first

            result = self.elementwise(fold, result, *now)
        return result

    def reduce(self, v: Value, kind: str, axes: Sequence[int], keepdims: bool = True) -> Value:
        """Reduce over `axes`; without axes, return `v`."""
        if not axes:
            return v
        return self.add(Reduce(kind=kind, axes=positive_axes(axes, len(v.shape)), keepdims=keepdims), [v])

    def softmax(self, v: Value, axis: int = -1, log: bool = False) -> Value:
        """Emit softmax (or its logarithm) along one axis."""
        return self.add(Softmax(axis=normalize_axis(axis, len(v.shape)), log=log), [v])

    def matmul(
        self,
        a: Value,
        b: Value,
        trans_a: bool = False,
        trans_b: bool = False,
        *,
        zeros: tuple[Value | None, Value | None] | None = None,
    ) -> Value:
        """Emit NumPy's matmul, vectors included; `trans_*` swaps the last two dimensions first.

        zeros: zero points of a and b; then a and b are 8-bit integers and the product is int32.
        """
        if not a.shape or not b.shape:
            raise ShapeError(f"a matrix product needs at least one dimension on both sides, got {a.type} and {b.type}")
        squeezed: list[int] = []
        rank = max(len(a.shape), len(b.shape), 2)
        if len(b.shape) == 1:
            b = self.reshape(b, (b.shape[0], 1))
            squeezed.append(rank - 1)
        if len(a.shape) == 1:
            a = self.reshape(a, (1, a.shape[0]))
            squeezed.append(rank - 2)
        op = (MatMul if zeros is None else IntegerMatMul)(trans_a, trans_b)
        out = self.add(op, [a, b, *(zeros or ())])
        return self.squeeze(out, squeezed) if squeezed else out
