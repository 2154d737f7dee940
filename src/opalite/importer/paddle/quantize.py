"""Importers of quantisation. A scale is the number that the largest level stands for."""

from __future__ import annotations

import numpy as np

from ...errors import ShapeError
from ...expr.trace_function import Sym, cast_expr
from ...ir import DType, Value
from ...ops.elementwise import Elementwise
from .common import Found, PaddleNode, paddle_op


def _step(n: PaddleNode, scale: Value, x: Value, axis: int, levels: int) -> Value:
    """Return the size of one level, broadcast along `axis` of x."""
    count = scale.type.count
    flat = n.reshape(scale, (count,))
    if count != 1 and (not -len(x.shape) <= axis < len(x.shape) or x.shape[axis] != count):
        raise ShapeError(f"{n.label} has {count} scales for axis {axis} of {x.type}")
    spread = n.reshape(flat, ()) if count == 1 else n.along_axis(flat, axis % len(x.shape), len(x.shape))
    return n.elementwise(lambda s: s * (1 / levels), spread)


def _levels(n: PaddleNode, *names: str) -> int:
    bits = int(n.number(*(names or ("bit_length", "quant_bits")), default=8))
    if not 1 < bits <= 16:
        raise n.refuse(f"has {bits} bits; 2 to 16 are known")
    return (1 << (bits - 1)) - 1


def _quantized(n: PaddleNode, x: Value, step: Value, levels: int) -> Value:
    """Return the level of each element, in x's type."""
    if levels == 127:
        whole = n.elementwise(lambda v, s: (v / s).call("rint").typed("saturate", DType.INT8), x, step)
        return n.cast(whole, x.dtype)

    def level(v: Sym, s: Sym) -> Sym:
        return (v / s).call("rint").call("max", -levels - 1).call("min", levels)

    return n.elementwise(level, x, step)


@paddle_op(
    "quantize_linear", operands="x scale zero_point in_accum in_state", outputs="y out_scale out_accum out_state"
)
def quantize_linear(n: PaddleNode) -> Value:
    """Import quantize_linear: levels as floats; a node that only observes gives its input."""
    x = n.value("x")
    if n.is_set("only_observer"):
        return x
    levels = _levels(n)
    return _quantized(n, x, _step(n, n.value("scale"), x, int(n.number("quant_axis", default=-1)), levels), levels)


@paddle_op(
    "dequantize_linear", operands="x scale zero_point in_accum in_state", outputs="y out_scale out_accum out_state"
)
def dequantize_linear(n: PaddleNode) -> Value:
    """Import dequantize_linear: constants of 8 bits stay such in products."""
    x, scale = n.value("x"), n.value("scale")
    if n.is_set("only_observer"):
        return x
    axis, levels = int(n.number("quant_axis", default=-1)), _levels(n)
    x = _whole(n, x)
    step = _step(n, scale, x, axis, levels)
    if x.dtype in (DType.INT8, DType.UINT8):
        flat = n.reshape(step, () if step.type.count == 1 else (step.type.count,))
        return n.emit("DequantizeLinear", [x, flat], axis=axis % max(1, len(x.shape)))
    return n.elementwise(lambda v, s: v.cast(s.dtype) * s, x, step)


def _whole(n: PaddleNode, x: Value) -> Value:
    """Return levels as int8, where these are behind floats or all of a constant's numbers are such."""
    made = x.producer
    if made is not None and isinstance(made.op, Elementwise) and made.inputs[0] is not None:
        source = made.inputs[0]
        if source.dtype is DType.INT8 and made.op.expr == cast_expr(DType.INT8, x.dtype):
            return source
    if x.data is not None and x.dtype.is_float and x.type.count:
        levels = x.data
        if np.array_equal(levels, np.rint(levels)) and levels.min() >= -128 and levels.max() <= 127:
            return n.constant(levels.astype(np.int8))
    return x


_TRAINED = (
    "fake_quantize_dequantize_moving_average_abs_max",
    "fake_quantize_dequantize_range_abs_max",
    "fake_quantize_moving_average_abs_max",
    "fake_quantize_range_abs_max",
)


@paddle_op(*_TRAINED, operands="x in_scale in_accum in_state", outputs="out out_scale out_state out_accum")
def fake_quantize(n: PaddleNode) -> Found:
    """Import fake_quantize by a scale from training: levels, or the numbers that these stand for."""
    x, scale, levels = n.value("x"), n.value("in_scale"), _levels(n)
    return {"out": _fake(n, x, _step(n, scale, x, -1, levels), levels), "out_scale": scale}


_OF_RANGE = (
    "fake_quantize_dequantize_abs_max",
    "fake_quantize_abs_max",
    "fake_channel_wise_quantize_dequantize_abs_max",
    "fake_channel_wise_quantize_abs_max",
)


@paddle_op(*_OF_RANGE, outputs="out out_scale")
def fake_quantize_range(n: PaddleNode) -> Found:
    """Import fake_quantize by the largest element, of the tensor or each channel."""
    x, levels = n.value("x"), _levels(n)
    axis = n.axis(len(x.shape), "quant_axis", default=0)
    over = [i for i in range(len(x.shape)) if i != axis or "channel_wise" not in n.op_type]
    largest = n.reduce(n.unary("abs", x), "max", over)
    scale = n.reshape(largest, (largest.type.count,))
    return {"out": _fake(n, x, _step(n, scale, x, axis, levels), levels), "out_scale": scale}


def _fake(n: PaddleNode, x: Value, step: Value, levels: int) -> Value:
    found = _quantized(n, x, step, levels)
    return n.elementwise(lambda q, s: q * s, found, step) if "dequantize" in n.op_type else found


@paddle_op("moving_average_abs_max_scale", operands="x in_accum in_state", outputs="out out_scale out_state out_accum")
def observer(n: PaddleNode) -> Value:
    """Import moving_average_abs_max_scale, which observes: its input."""
    return n.value("x")


@paddle_op("fake_dequantize_max_abs", "dequantize_abs_max", operands="x scale")
def fake_dequantize(n: PaddleNode) -> Value:
    """Import fake_dequantize_max_abs: x * scale / max_range."""
    most = float(n.number("max_range"))
    scale = n.reshape(n.value("scale"), ())
    return n.elementwise(lambda v, s: v.cast(s.dtype) * s * (1 / most), n.value("x"), scale)


@paddle_op("fake_channel_wise_dequantize_max_abs", operands="x scales")
def fake_channel_wise_dequantize(n: PaddleNode) -> Value:
    """Import fake_channel_wise_dequantize_max_abs: scales of an axis, then perhaps of the whole tensor."""
    x, scales = n.value("x"), n.values("scales")
    bits = n.whole("quant_bits", default=(8,) * len(scales))
    axis = n.axis(len(x.shape), "quant_axis", default=0)
    if len(scales) > 1:  # an activation's scale follows: channels of the product are its second axis
        axis = int(n.number("x_num_col_dims", default=1))
    out = x
    for scale, width in zip(scales, bits, strict=True):
        step = _step(n, scale, x, axis, (1 << (width - 1)) - 1)
        out = n.elementwise(lambda v, s: v.cast(s.dtype) * s, out, step)
    return out
