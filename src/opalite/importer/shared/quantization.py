"""Affine quantisation: broadcasting of scales and zero points, and helpers of quantised operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import ShapeError
from ...expr.trace_function import Sym
from ...ir.dtype import DType
from ...ir.graph import Value
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
    zero = nonzero_zero_point(zero)

    def expression(v: Sym, s: Sym, *z: Sym) -> Sym:
        return divided(v, s, z[0] if z else None, dtype)

    return ctx.elementwise(expression, x, scale, *([zero] if zero is not None else []))


def quantized_elementwise(
    ctx: NodeContext,
    fn: Callable[..., Sym],
    operands: Sequence[Quantized],
    scale: Value,
    zero: Value | None,
    dtype: DType,
) -> Value:
    """Apply fn to dequantised operands and quantise the result, in one expression."""
    flat: list[Value] = []
    layout: list[int] = []
    zero = nonzero_zero_point(zero)
    for q in operands:
        known = nonzero_zero_point(q.zero)
        flat += [q.value, q.scale, *([known] if known is not None else [])]
        layout.append(3 if known is not None else 2)

    def expression(*syms: Sym) -> Sym:
        reals, at = [], 0
        for n in layout:
            part = syms[at : at + n]
            reals.append(dequantized(part[0], part[1], part[2] if n == 3 else None))
            at += n
        return quantized(fn(*reals) / syms[at].cast(DType.FLOAT32), syms[at + 1] if zero is not None else None, dtype)

    return ctx.elementwise(expression, *flat, scale, *([zero] if zero is not None else []))


def requantize(
    ctx: NodeContext, acc: Value, factors: Sequence[Value], scale: Value, zero: Value | None, dtype: DType
) -> Value:
    """Return saturate(rint(acc * (product of factors) / scale) + zero) of an int32 accumulator."""
    factor = ctx.cast(factors[0], DType.FLOAT32)
    for f in factors[1:]:
        factor = ctx.elementwise(lambda a, b: a * b.cast(DType.FLOAT32), factor, f)
    factor = ctx.elementwise(lambda a, s: a / s.cast(DType.FLOAT32), factor, scale)
    zero = nonzero_zero_point(zero)

    def expression(a: Sym, f: Sym, *z: Sym) -> Sym:
        return quantized(a.cast(DType.FLOAT32) * f, z[0] if z else None, dtype)

    return ctx.elementwise(expression, acc, factor, *([zero] if zero is not None else []))
