"""Importers of Fourier transforms and complex numbers, which are pairs on a last axis of 2."""

from __future__ import annotations

from ...errors import ShapeError
from ...ir import Value
from ..onnx.fourier import transform
from ..walk.node_context import NodeContext
from .common import tflite_op


@tflite_op("RFFT2D", pairs=True)
def rfft2d(ctx: NodeContext) -> Value:
    """Import RFFT2D: of the last two axes of real x, cut or padded to the lengths in input 1; half of the last one."""
    x, lengths = ctx.input(0), ctx.const_ints(1)
    rank = len(x.shape)
    if rank < 2 or len(lengths) != 2:
        raise ShapeError(f"{ctx.label} transforms {x.type} by lengths {lengths}; two axes and lengths are expected")
    y = transform(ctx, ctx.reshape(x, (*x.shape, 1)), lengths[1], False, True)
    if lengths[0] == 1:
        return ctx.slice_axis(y, rank - 2, 0, 1)
    return ctx.swap_axes(
        transform(ctx, ctx.swap_axes(y, rank - 2, rank - 1), lengths[0], False, False), rank - 2, rank - 1
    )


@tflite_op("REAL", "IMAG", pairs=True)
def part(ctx: NodeContext) -> Value:
    """Import REAL and IMAG: one part of complex numbers."""
    return part_of(ctx, ctx.input(0), 0 if ctx.op_type == "REAL" else 1)


def part_of(ctx: NodeContext, x: Value, which: int) -> Value:
    """Return the real (0) or imaginary (1) part of complex numbers."""
    axis = len(x.shape) - 1
    return ctx.squeeze(ctx.slice_axis(x, axis, which, which + 1), (axis,))


@tflite_op("COMPLEX_ABS", pairs=True)
def complex_abs(ctx: NodeContext) -> Value:
    """Import COMPLEX_ABS: the lengths of complex numbers."""
    return ctx.reduce(ctx.input(0), "l2", (len(ctx.input(0).shape) - 1,), keepdims=False)


def complex_product(ctx: NodeContext, x: Value, y: Value) -> Value:
    """Return the products of complex numbers."""
    a, b = (part_of(ctx, x, i) for i in (0, 1))
    c, d = (part_of(ctx, y, i) for i in (0, 1))
    parts = [
        ctx.elementwise(lambda a, b, c, d: a * c - b * d, a, b, c, d),
        ctx.elementwise(lambda a, b, c, d: a * d + b * c, a, b, c, d),
    ]
    axis = len(parts[0].shape)
    return ctx.concat([ctx.unsqueeze(p, (axis,)) for p in parts], axis)
