"""Helpers that emit canonical operators: axes, reshapes, slices, products and reductions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...expr.expression import Expr
from ...expr.trace_function import Sym, call
from ...ir.dtype import DType
from ...ir.graph import Value
from ...ir.symbols import always_equal, int_or_symbolic, is_symbolic
from ...ops.data_movement import Concat, Pad, Slice
from ...ops.gather import Gather
from ...ops.integer_conv_matmul import IntegerMatMul
from ...ops.matmul import MatMul
from ...ops.operator import broadcast_shape, normalize_axis
from ...ops.reduce import Reduce
from ...ops.softmax import Softmax
from ..walk.node_context import NodeContext

Array = np.ndarray[Any, Any]

MAX_OPERANDS = 8
"""Largest number of operands of one Elementwise: its kernel has one pointer argument for each."""


# Attributes that became inputs in later versions


def ints_of(ctx: NodeContext, name: str, index: int, input_since: int) -> tuple[int, ...] | None:
    """Read integers: attribute `name` before version `input_since`, input `index` from then on; None if absent."""
    if ctx.version >= input_since:
        return None if ctx.get(index) is None else ctx.const_ints(index)
    found = ctx.attr(name, None)
    return None if found is None else tuple(int(v) for v in found)


def int_list(ctx: NodeContext, name: str, default: Sequence[int]) -> tuple[int, ...]:
    """Return an INTS attribute as a tuple."""
    return tuple(int(v) for v in ctx.attr(name, default))


def axis_of(ctx: NodeContext, rank: int, default: int, name: str = "axis") -> int:
    """Return an axis attribute, counted from the front."""
    return normalize_axis(int(ctx.attr(name, default)), rank, name)


def positive_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return axes counted from the front, sorted; ShapeError for duplicates."""
    found = tuple(sorted(normalize_axis(int(a), rank) for a in axes))
    if len(set(found)) != len(found):
        raise ShapeError(f"axes {tuple(axes)} name an axis twice")
    return found


# Shapes


def unsqueeze(ctx: NodeContext, v: Value, axes: Sequence[int]) -> Value:
    """Insert dimensions of 1 at `axes` of the result."""
    rank = len(v.shape) + len(axes)
    where = positive_axes(axes, rank)
    rest = iter(v.shape)
    return ctx.reshape(v, tuple(1 if i in where else next(rest) for i in range(rank)))


def squeeze(ctx: NodeContext, v: Value, axes: Sequence[int]) -> Value:
    """Remove the dimensions of 1 at `axes`."""
    where = positive_axes(axes, len(v.shape))
    for a in where:
        if v.shape[a] != 1:
            raise ShapeError(f"axis {a} of {v.type} cannot be squeezed: its size is not 1")
    return ctx.reshape(v, tuple(d for i, d in enumerate(v.shape) if i not in where))


def along_axis(ctx: NodeContext, v: Value, axis: int, rank: int) -> Value:
    """Reshape a vector to `rank` so that it broadcasts along every axis but `axis`; a scalar gets one element."""
    if len(v.shape) > 1:
        raise ShapeError(f"expected a scalar or a vector for axis {axis}, got {v.type}")
    if math.prod(v.shape) == 1:
        return ctx.reshape(v, (1,) * rank)
    return ctx.reshape(v, tuple(v.shape[0] if i == axis else 1 for i in range(rank)))


def expand(ctx: NodeContext, v: Value, shape: Sequence[int]) -> Value:
    """Broadcast `v` and `shape` against each other, as NumPy does."""
    target = broadcast_shape([v.shape, tuple(shape)])
    if target == v.shape:
        return v
    return ctx.elementwise_expr(Expr((), (v.dtype,)), v, shape=target)


def slice_axis(ctx: NodeContext, v: Value, axis: int, start: int, stop: int, step: int = 1) -> Value:
    """Return v[..., start:stop:step, ...] along one axis; start and stop count from the front, step is positive."""
    size = max(0, -(-(stop - start) // step))
    if step == 1 and always_equal((start, size), (0, v.shape[axis])):
        return v
    rank = len(v.shape)
    return ctx.add(
        Slice(
            starts=tuple(start if i == axis else 0 for i in range(rank)),
            steps=tuple(step if i == axis else 1 for i in range(rank)),
            sizes=tuple(size if i == axis else d for i, d in enumerate(v.shape)),
        ),
        [v],
    )


def split_axis(ctx: NodeContext, v: Value, axis: int, sizes: Sequence[int]) -> list[Value]:
    """Split `v` into consecutive pieces of `sizes` along `axis`."""
    if sum(sizes) != v.shape[axis]:
        raise ShapeError(f"pieces {tuple(sizes)} do not add up to axis {axis} of {v.type}")
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return [slice_axis(ctx, v, axis, a, a + n) for a, n in zip(starts, sizes, strict=True)]


def concat(ctx: NodeContext, values: Sequence[Value], axis: int) -> Value:
    """Concatenate the values along `axis`."""
    return values[0] if len(values) == 1 else ctx.add(Concat(axis=axis), list(values))


def pad_zeros(ctx: NodeContext, v: Value, pads: Sequence[int], value: float | int = 0) -> Value:
    """Pad with a constant; `pads` holds the begin of every axis, then the end of every axis."""
    if not any(pads):
        return v
    return ctx.add(Pad(pads=tuple(int_or_symbolic(p) for p in pads), mode="constant", value=value), [v])


# Arithmetic


def default_element(dtype: DType) -> Any:
    """Return the default element: zero, or the empty string."""
    return "" if dtype is DType.STRING else 0


def full(ctx: NodeContext, value: Any, dtype: DType, shape: Sequence[int]) -> Value:
    """Return a tensor of `shape` filled with `value`."""
    if is_symbolic(tuple(shape)):
        return expand(ctx, ctx.scalar(value, dtype), shape)
    return ctx.constant(np.full(tuple(shape), value, dtype.np))


def unary(ctx: NodeContext, fn: str, v: Value) -> Value:
    """Apply an Expr function of one argument to each element."""
    return ctx.elementwise_expr(call(fn, v.dtype), v)


def binary(ctx: NodeContext, fn: str, a: Value, b: Value) -> Value:
    """Apply an Expr function of two arguments to broadcast values of equal dtype."""
    return ctx.elementwise_expr(call(fn, a.dtype, b.dtype), a, b)


def chain(ctx: NodeContext, fn: str, values: Sequence[Value]) -> Value:
    """Emit fn(fn(v0, v1), v2)... over any number of values."""
    result, rest = values[0], list(values[1:])
    while rest:
        now, rest = rest[: MAX_OPERANDS - 1], rest[MAX_OPERANDS - 1 :]

        def fold(first: Sym, *others: Sym) -> Sym:
            for o in others:
                first = first.call(fn, o)
            return first

        result = ctx.elementwise(fold, result, *now)
    return result


def reduce(ctx: NodeContext, v: Value, kind: str, axes: Sequence[int], keepdims: bool = True) -> Value:
    """Reduce over `axes`; without axes, return `v`."""
    if not axes:
        return v
    return ctx.add(Reduce(kind=kind, axes=positive_axes(axes, len(v.shape)), keepdims=keepdims), [v])


def softmax(ctx: NodeContext, v: Value, axis: int = -1, log: bool = False) -> Value:
    """Emit softmax (or its logarithm) along one axis."""
    return ctx.add(Softmax(axis=normalize_axis(axis, len(v.shape)), log=log), [v])


def matmul(
    ctx: NodeContext,
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
        b = ctx.reshape(b, (b.shape[0], 1))
        squeezed.append(rank - 1)
    if len(a.shape) == 1:
        a = ctx.reshape(a, (1, a.shape[0]))
        squeezed.append(rank - 2)
    op = (MatMul if zeros is None else IntegerMatMul)(trans_a, trans_b)
    out = ctx.add(op, [a, b, *(zeros or ())])
    return squeeze(ctx, out, squeezed) if squeezed else out


def gather(ctx: NodeContext, v: Value, indices: Value, axis: int) -> Value:
    """Emit NumPy's take along one axis."""
    return ctx.add(Gather(axis=axis), [v, indices])


def take(ctx: NodeContext, v: Value, positions: Array, axis: int) -> Value:
    """Take `v` at constant positions along `axis`; `positions` may have any shape."""
    return gather(ctx, v, ctx.constant(positions.astype(np.int64)), axis)


def swap_axes(ctx: NodeContext, v: Value, a: int, b: int) -> Value:
    """Exchange two axes of `v`."""
    perm = list(range(len(v.shape)))
    perm[a], perm[b] = perm[b], perm[a]
    return v if a == b else ctx.transpose(v, tuple(perm))


def split_heads(ctx: NodeContext, v: Value, heads: int) -> Value:
    """Reshape [B, S, H*D] to [B, H, S, D]."""
    if len(v.shape) != 3 or v.shape[2] % heads:
        raise ShapeError(f"expected [batch, sequence, {heads} heads * size], got {v.type}")
    b, s, width = v.shape
    return ctx.transpose(ctx.reshape(v, (b, s, heads, width // heads)), (0, 2, 1, 3))


def merge_heads(ctx: NodeContext, v: Value) -> Value:
    """Reshape [B, H, S, D] to [B, S, H*D]."""
    b, h, s, d = v.shape
    return ctx.reshape(ctx.transpose(v, (0, 2, 1, 3)), (b, s, h * d))
