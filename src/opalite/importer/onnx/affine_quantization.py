"""Affine quantisation: broadcasting of scales and zero points, and helpers of quantised operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...expr.trace_function import Sym
from ...ir import DType, Value
from ...ops.affine_quantization import dequantized, divided, quantized
from ...ops.operator import normalize_axis
from ..walk.node_context import NodeContext


@dataclass(frozen=True)
class Quantized:
    """Quantised tensor; scale and zero point (None: 0) broadcast against it."""

    value: Value
    scale: Value
    zero: Value | None


def broadcast_parameter(ctx: NodeContext, parameter: Value, x: Value, axis: int, block: int) -> tuple[Value, Value]:
    """Reshape `x` and a scale or zero point for broadcasting: per tensor, per `axis`, or per block along it.

    block: elements per block, 0 if unknown. Blocks that divide the axis become an axis of their own, which copies no
    element; the caller restores x's shape.
    """
    rank = len(x.shape)
    if parameter.type.count == 1:
        return x, ctx.reshape(parameter, ())
    axis = normalize_axis(axis, rank)
    if len(parameter.shape) == 1 and not (block and rank == 1):
        return x, ctx.along_axis(parameter, axis, rank)
    if len(parameter.shape) != rank:
        raise ShapeError(f"{ctx.label} has a scale {parameter.type} for {x.type}: expected a scalar, vector or blocks")
    size, blocks = x.shape[axis], parameter.shape[axis]
    block = block or -(-size // blocks)
    if size == blocks * block:
        lead, tail = x.shape[:axis], x.shape[axis + 1 :]
        x = ctx.reshape(x, (*lead, blocks, block, *tail))
        return x, ctx.reshape(parameter, (*parameter.shape[: axis + 1], 1, *parameter.shape[axis + 1 :]))
    return x, ctx.take(parameter, np.minimum(np.arange(size) // block, blocks - 1), axis)


def nonzero_zero_point(zero: Value | None) -> Value | None:
    """Return the zero point, or None if it is known to be zero everywhere."""
    return None if zero is None or (zero.data is not None and not zero.data.astype(np.float32).any()) else zero


def minus_zero_point(ctx: NodeContext, v: Value, zero: Value | None) -> Value:
    """Return v - zero in int32; `zero` broadcasts against v."""
    if zero is None:
        return ctx.cast(v, DType.INT32)
    return ctx.elementwise(lambda x, z: x.cast(DType.INT32) - z.cast(DType.INT32), v, zero)


def quantize(ctx: NodeContext, x: Value, scale: Value, zero: Value | None, dtype: DType) -> Value:
    """Quantise x / scale to `dtype`, computed in float32."""
    return ctx.elementwise(lambda v, s, z: divided(v, s, z, dtype), x, scale, nonzero_zero_point(zero))


def quantized_elementwise(
    ctx: NodeContext,
    fn: Callable[..., Sym],
    operands: Sequence[Quantized],
    scale: Value,
    zero: Value | None,
    dtype: DType,
) -> Value:
    """Apply fn to dequantised operands and quantise the result, in one expression."""
    flat = [v for q in operands for v in (q.value, q.scale, nonzero_zero_point(q.zero))]

    def expression(*syms: Any) -> Sym:
        *parts, s, z = syms
        reals = [dequantized(*parts[at : at + 3]) for at in range(0, len(parts), 3)]
        return quantized(fn(*reals) / s.cast(DType.FLOAT32), z, dtype)

    return ctx.elementwise(expression, *flat, scale, nonzero_zero_point(zero))


def requantize(
    ctx: NodeContext, acc: Value, factors: Sequence[Value], scale: Value, zero: Value | None, dtype: DType
) -> Value:
    """Return saturate(rint(acc * (product of factors) / scale) + zero) of an int32 accumulator."""
    factor = ctx.cast(factors[0], DType.FLOAT32)
    for f in factors[1:]:
        factor = ctx.elementwise(lambda a, b: a * b.cast(DType.FLOAT32), factor, f)
    factor = ctx.elementwise(lambda a, s: a / s.cast(DType.FLOAT32), factor, scale)

    def expression(a: Sym, f: Sym, z: Sym | None) -> Sym:
        return quantized(a.cast(DType.FLOAT32) * f, z, dtype)

    return ctx.elementwise(expression, acc, factor, nonzero_zero_point(zero))
