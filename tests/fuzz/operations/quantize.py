"""Quantisation."""

from __future__ import annotations

import math

import numpy as np

from ..builder import Builder, Rejected
from ..registry import operation
from .window import padding, window


def scale(b: Builder, shape: list[int] | None = None) -> str:
    return b.const(b.draw.array(shape or [], "f4", 0.02, 0.1), 0.0)


def zero(b: Builder, dtype: str, shape: list[int] | None = None) -> str:
    low, high = (100, 150) if dtype == "u1" else (-5, 5)
    return b.const(b.draw.array(shape or [], dtype, low, high), 0.0)


def quantized(b: Builder, x: str, dtype: str) -> str:
    if b.opset < 10:
        raise Rejected("QuantizeLinear")
    return b.emit("QuantizeLinear", [x, scale(b), zero(b, dtype)])


def weights(b: Builder, shape: list[int]) -> str:
    """int8 of 7 bits: onnxruntime adds two products with uint8 in 16 bits on processors without VNNI."""
    return b.const(b.draw.array(shape, "i1", -64, 63), 0.0)


def float32(b: Builder, rank: int | None = None) -> str:
    return b.tensor(["f4"], rank, lambda a: a.size <= 6000 and bool(np.isfinite(a).all()))


@operation("quantize", 1)
def quantize_dequantize(b: Builder) -> None:
    d, x, dtype = b.draw, float32(b), b.draw.pick(["u1", "i1"])
    if b.opset >= 13 and b[x].ndim > 1 and d.chance(0.3):
        axis = d.between(0, b[x].ndim - 1)
        n = [b[x].shape[axis]]
        if not n[0]:
            raise Rejected("no elements")
        s, z = scale(b, n), zero(b, dtype, n)
        q = b.emit("QuantizeLinear", [x, s, z], axis=axis)
        b.emit("DequantizeLinear", [q, s, z], axis=axis)
        return
    if b.opset < 10:
        raise Rejected("QuantizeLinear")
    s, z = scale(b), zero(b, dtype)
    q = b.emit("QuantizeLinear", [x, s, z])
    b.emit("DequantizeLinear", [q, s, z])


@operation("quantize", 0.5)
def quantized_conv(b: Builder) -> None:
    if not b.has("QLinearConv"):
        raise Rejected("QLinearConv")
    d, x = b.draw, float32(b, 4)
    c = b[x].shape[1]
    if not c:
        raise Rejected("no channels")
    kind = d.pick(["u1", "i1"])
    xs, xz = scale(b), zero(b, kind)
    q = b.emit("QuantizeLinear", [x, xs, xz])
    group = d.pick([1, 1, c])
    out = group * d.pick([1, 2, 3, 4]) if group > 1 else d.pick([1, 4, 5, 8, 16])
    kernel, strides, _ = window(b, 2)
    w = weights(b, [out, c // group, *kernel])
    channels = [out] if d.chance(0.5) else []
    ws, wz = scale(b, channels), b.const(np.zeros(channels, "i1"), 0.0)
    ys = b.const(np.float32(0.3 * math.sqrt(c // group * math.prod(kernel))), 0.0)
    yz = zero(b, kind)
    inputs = [q, xs, xz, w, ws, wz, ys, yz]
    if d.chance(0.5):
        inputs.append(b.const(d.array([out], "i4", -500, 500), 0.0))
    y = b.emit("QLinearConv", inputs, group=group, kernel_shape=kernel, strides=strides, **padding(b, kernel))
    b.emit("DequantizeLinear", [y, ys, yz])


@operation("quantize", 0.5)
def quantized_matmul(b: Builder) -> None:
    if not b.has("QLinearMatMul"):
        raise Rejected("QLinearMatMul")
    d, x = b.draw, b.tensor(["f4"], where=lambda a: a.ndim >= 2 and 0 < a.size <= 4000)
    kind = d.pick(["u1", "i1"])
    xs, xz = scale(b), zero(b, kind)
    q = b.emit("QuantizeLinear", [x, xs, xz])
    k, n = b[x].shape[-1], d.pick([1, 3, 4, 8, 16, 17])
    w = weights(b, [k, n])
    ys, yz = b.const(np.float32(0.3 * math.sqrt(k)), 0.0), zero(b, kind)
    y = b.emit("QLinearMatMul", [q, xs, xz, w, scale(b), zero(b, "i1"), ys, yz])
    b.emit("DequantizeLinear", [y, ys, yz])


@operation("quantize", 0.5)
def integer_product(b: Builder) -> None:
    """MatMulInteger and ConvInteger, brought back to floats."""
    d = b.draw
    if not b.has("MatMulInteger"):
        raise Rejected("MatMulInteger")
    if d.chance(0.6):
        x = b.tensor(["u1", "i1"], where=lambda a: a.ndim >= 2 and 0 < a.size <= 4000)
        w = weights(b, [b[x].shape[-1], d.pick([1, 4, 7, 16])])
        zeros = [b.const(d.array([], b[x].dtype, 0, 5), 0.0), b.const(np.int8(d.between(-3, 3)), 0.0)]
        y = b.emit("MatMulInteger", [x, w, *zeros[: d.between(0, 2)]])
    else:
        x = b.tensor(["u1"], 4, lambda a: 0 < a.size <= 4000)
        kernel, strides, _ = window(b, 2)
        kind = d.pick(["u1", "i1"])
        shape = [d.pick([1, 4, 5]), b[x].shape[1], *kernel]
        w = weights(b, shape) if kind == "i1" else b.const(d.array(shape, kind, 0, 90), 0.0)
        inputs = [x, w, b.const(np.uint8(d.between(0, 9)), 0.0)] if d.chance(0.6) else [x, w]
        y = b.emit("ConvInteger", inputs, strides=strides, kernel_shape=kernel, **padding(b, kernel))
    b.emit("Mul", [b.emit("Cast", [y], to=1), b.const(np.float32(1e-3), 0.0)])


@operation("quantize", 0.4)
def dynamic_quantize(b: Builder) -> None:
    if not b.has("DynamicQuantizeLinear"):
        raise Rejected("DynamicQuantizeLinear")
    if b.draw.chance(0.1):
        x = b.input(np.zeros(b.draw.shape(), "f4"))
    else:
        x = b.tensor(["f4"], where=lambda a: 0 < a.size <= 6000 and bool(np.isfinite(a).all()))
    if not b[x].size:
        raise Rejected("the range of nothing")
    q, s, z = b.emit_all("DynamicQuantizeLinear", [x], 3)
    b.emit("DequantizeLinear", [q, s, z])


@operation("quantize", 0.5)
def fake_quantized_layer(b: Builder) -> None:
    """Dequantised input and weights into a float layer, as quantisation-aware training leaves it."""
    d = b.draw
    if b.opset < 13:
        raise Rejected("per-channel DequantizeLinear")
    conv = d.chance(0.6)
    x = b.tensor(["f4"], 4 if conv else 2, lambda a: 0 < a.size <= 4000 and bool(np.isfinite(a).all()))
    kind = d.pick(["u1", "i1"])
    s, z = scale(b), zero(b, kind)
    xd = b.emit("DequantizeLinear", [b.emit("QuantizeLinear", [x, s, z]), s, z])
    c, out = b[x].shape[1], d.pick([1, 4, 5, 8, 16])
    shape = [out, c, d.pick([1, 3]), d.pick([1, 3])] if conv else [c, out]
    w = weights(b, shape)
    ws = b.const(d.array([out], "f4", 0.001, 0.01), 0.0)
    wd = b.emit("DequantizeLinear", [w, ws, b.const(np.zeros(out, "i1"), 0.0)], axis=0 if conv else 1)
    y = b.emit("Conv", [xd, wd], pads=[shape[2] // 2, shape[3] // 2] * 2) if conv else b.emit("MatMul", [xd, wd])
    if d.chance(0.5):
        y = b.emit("Relu", [y])
    b.emit("DequantizeLinear", [b.emit("QuantizeLinear", [y, s, z]), s, z])
