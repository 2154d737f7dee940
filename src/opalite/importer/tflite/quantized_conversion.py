"""Importers of QUANTIZE, DEQUANTIZE and of movements whose parts have scales of their own."""

from __future__ import annotations

import numpy as np

from ...expr.trace_function import Sym
from ...ir import DType, Value
from ...ir.constants.quantized_constant import QuantizedConstant
from ..walk.node_context import NodeContext
from .common import quantized_op, tensors_of, tflite_op, unsupported
from .fixed_point import round_away, rounded_away, scaled
from .quantization import Affine, affine, levels_of, out_affine
from .quantized_tables import look_up


@tflite_op("QUANTIZE", moves=True)
def quantize(ctx: NodeContext) -> Value:
    """Import QUANTIZE: of floats, halves away from zero, or from one scale to another."""
    x, t = ctx.input(0), tensors_of(ctx).outputs[0]
    if x.dtype.is_float:
        return _from_floats(ctx, x)
    a, out = affine(ctx, 0), out_affine(ctx)
    if t.dtype is DType.INT32:
        return ctx.elementwise(lambda q: scaled(a.centred(q), float(a.scale) / float(out.scale)) + out.zero, x)
    return ctx.elementwise(lambda q: out.stored(scaled(a.centred(q), float(a.scale) / float(out.scale))), x)


def _from_floats(ctx: NodeContext, x: Value) -> Value:
    t = tensors_of(ctx).outputs[0]
    levels, dtype = levels_of(ctx, t, "output 0"), t.dtype
    if dtype is None or not (dtype.is_int and dtype.on_device):
        raise unsupported(ctx, f"gives {dtype}; int8, uint8 or int16 is expected")
    ends = np.iinfo(dtype.np)
    axis, rank = levels.axis, len(x.shape)
    scale = ctx.along_axis(ctx.constant(levels.scale.astype(np.float32)), axis, rank)
    zero = ctx.along_axis(ctx.constant(levels.zero_point.astype(np.int32)), axis, rank)

    def whole(v: Sym, s: Sym, z: Sym) -> Sym:
        q = rounded_away(v / s).call("max", -(2.0**30)).call("min", 2.0**30).cast(DType.INT32) + z
        return q.call("max", int(ends.min)).call("min", int(ends.max)).cast(dtype)

    return ctx.elementwise(whole, ctx.cast(x, DType.FLOAT32), scale, zero)


@quantized_op("DEQUANTIZE")
def dequantize(ctx: NodeContext) -> Value:
    """Import DEQUANTIZE of integers: (q - zero) * scale, whole or by channels."""
    x, t = ctx.input(0), tensors_of(ctx).inputs[0]
    levels = levels_of(ctx, t, "input 0")
    if not x.dtype.on_device:
        if x.data is None:
            raise unsupported(ctx, f"has computed {x.dtype}; integers of fewer than 8 bits must be constant")
        x = ctx.constant(x.data.astype(np.int8))
    axis, rank = levels.axis, len(x.shape)
    scale = ctx.along_axis(ctx.constant(levels.scale.astype(np.float32)), axis, rank)
    zero = ctx.along_axis(ctx.constant(levels.zero_point.astype(np.int32)), axis, rank)
    y = ctx.elementwise(lambda q, s, z: (q.cast(DType.INT32) - z).cast(DType.FLOAT32) * s, x, scale, zero)
    if x.data is not None and scale.data is not None and x.dtype.size == 1:
        zeros = None if not levels.zero_point.any() or zero.data is None else zero.data.astype(x.dtype.np)
        y.quantized = QuantizedConstant(x.data, scale.data, zeros)
    return y


@quantized_op("CONCATENATION")
def concatenation(ctx: NodeContext) -> Value:
    """Import CONCATENATION: uint8 of other scales are rounded to the result's, and int16 stay what they are."""
    out, axis = out_affine(ctx), int(ctx.attr("axis", 0))
    parts = []
    for i, v in enumerate(ctx.inputs):
        if v is None:
            raise unsupported(ctx, f"lacks input {i}")
        a = affine(ctx, i)
        if a != out and out.dtype is DType.INT8:
            raise unsupported(ctx, "has parts with another scale than the result; one is expected")
        parts.append(v if a == out or out.dtype is DType.INT16 else _moved_to(ctx, v, a, out))
    return ctx.concat(parts, axis % len(parts[0].shape))


def _moved_to(ctx: NodeContext, v: Value, a: Affine, out: Affine) -> Value:
    """Return 8-bit integers at another scale, by a table: float32 computes it, and it depends on 256 numbers."""
    scale = a.scale * (np.float32(1) / out.scale)
    numbers = np.arange(a.ends[0], a.ends[1] + 1).astype(np.float32)
    whole = round_away(numbers * scale + np.float32(-a.zero) * scale) + out.zero
    return look_up(ctx, v, np.clip(whole, *out.ends).astype(out.dtype.np))


@quantized_op("PAD", "PADV2")
def pad(ctx: NodeContext) -> Value:
    """Import PAD and PADV2: with the zero point, or a given integer."""
    x, out = ctx.input(0), out_affine(ctx)
    rank = len(x.shape)
    pads = ctx.const_ints(1)
    value = int(ctx.const_scalar(2)) if ctx.op_type == "PADV2" and ctx.get(2) is not None else out.zero
    return ctx.pad_zeros(x, (*pads[0 : 2 * rank : 2], *pads[1 : 2 * rank : 2]), value)
