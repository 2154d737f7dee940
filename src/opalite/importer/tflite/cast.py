"""Importers of conversions between element types."""

from __future__ import annotations

from ...expr.trace_function import Sym
from ...ir import DType, Value
from ...ir.constants.lazy_array import converted
from ..walk.node_context import NodeContext
from .common import COMPLEX, info_of, out_dtype, tflite_op, unsupported
from .fourier import part_of


@tflite_op("CAST", moves=True, pairs=True)
def cast(ctx: NodeContext) -> Value:
    """Import CAST: floats are truncated to integers; the real part of a complex number counts."""
    x, info, dtype = ctx.input(0), info_of(ctx, 0), out_dtype(ctx)
    if dtype in COMPLEX:
        raise unsupported(ctx, "makes complex numbers of real ones")
    if info is not None and info.dtype in COMPLEX:
        x = part_of(ctx, x, 0)
    return ctx.cast(x, dtype)


@tflite_op("DEQUANTIZE")
def dequantize(ctx: NodeContext) -> Value:
    """Import DEQUANTIZE of halves, which stay in the file until they are used."""
    x, dtype = ctx.input(0), out_dtype(ctx)
    if x.lazy_data is not None:
        return ctx.constant(converted(x.lazy_data, dtype.np))
    return ctx.cast(x, dtype)


@tflite_op("DENSIFY", moves=True)
def densify(ctx: NodeContext) -> Value:
    """Import DENSIFY: sparse tensors are dense once they are read."""
    return ctx.input(0)


@tflite_op("BITCAST", moves=True)
def bitcast(ctx: NodeContext) -> Value:
    """Import BITCAST between types of one size."""
    x, dtype = ctx.input(0), out_dtype(ctx)
    if x.dtype.size != dtype.size:
        raise unsupported(ctx, f"reads bits of {x.dtype} as {dtype}, which has another size")
    return x if x.dtype is dtype else ctx.elementwise(lambda v: v.typed("bits", dtype), x)


@tflite_op("FAKE_QUANT")
def fake_quant(ctx: NodeContext) -> Value:
    """Import FAKE_QUANT: floats rounded to the levels that a quantised tensor of these ends would have."""
    if ctx.input(0).dtype is not DType.FLOAT32:
        raise unsupported(ctx, f"rounds {ctx.input(0).dtype}; float32 is expected")
    low, high = float(ctx.attr("min", 0.0)), float(ctx.attr("max", 0.0))
    first = 1 if ctx.attr("narrow_range", False) else 0
    last = 2 ** int(ctx.attr("num_bits", 8)) - 1
    scale = (high - low) / (last - first) or 1.0
    zero = min(last, max(first, round(first - low / scale)))

    def rounded(x: Sym) -> Sym:
        clamped: Sym = x.call("max", (first - zero) * scale).call("min", (last - zero) * scale)
        level: Sym = ((clamped - (first - zero) * scale) * (1 / scale) + 0.5).call("floor")
        found: Sym = level * scale + (first - zero) * scale
        return found

    return ctx.elementwise(rounded, ctx.input(0))
