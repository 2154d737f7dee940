"""com.microsoft: fused operators, as onnxruntime's optimiser writes them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..builder import Builder, Rejected
from ..registry import operation
from .quantize import scale, weights, zero

MS = "com.microsoft"


def single(b: Builder, least: int = 1, rank: int | None = None) -> str:
    return b.tensor(["f4"], rank, lambda a: a.ndim >= least and 0 < a.size <= 3000 and bool(np.isfinite(a).all()))


def weight(b: Builder, shape: list[int], factor: float = 1.0) -> str:
    return b.const((factor * b.draw.rng.standard_normal(shape)).astype("f4"), 0.05)


@operation("microsoft", 1)
def fused_gelu(b: Builder) -> None:
    d, x = b.draw, single(b)
    op = d.pick(["Gelu", "QuickGelu", "FastGelu", "BiasGelu"])
    if op in ("Gelu", "QuickGelu"):
        b.emit(op, [x], domain=MS, alpha=d.pick([None, 1.5]) if op == "QuickGelu" else None)
    else:
        bias = weight(b, [b[x].shape[-1]])
        b.emit(op, [x, bias] if op == "BiasGelu" or d.chance(0.6) else [x], domain=MS)


@operation("microsoft", 1)
def fused_matmul(b: Builder) -> None:
    d, x = b.draw, single(b, 2)
    turned = d.chance(0.4)
    k, n = b[x].shape[-2 if turned else -1], d.pick([1, 3, 8, 17])
    across = d.chance(0.4)
    w = weight(b, [n, k] if across else [k, n], 1 / math.sqrt(k))
    b.emit("FusedMatMul", [x, w], domain=MS, transA=int(turned), transB=int(across), alpha=d.pick([1.0, 0.5]))


@operation("microsoft", 1)
def fused_conv(b: Builder) -> None:
    d, x = b.draw, single(b, rank=4)
    c, out, k = b[x].shape[1], d.pick([1, 4, 5, 8]), d.pick([1, 3])
    inputs = [x, weight(b, [out, c, k, k], 1 / (k * math.sqrt(c))), weight(b, [out])]
    attrs: dict[str, Any] = {"pads": [k // 2] * 4, "kernel_shape": [k, k]}
    if d.chance(0.3):
        inputs.append(b.const(d.array([b[x].shape[0], out, *b[x].shape[2:]], "f4"), 0.3))
    b.emit("FusedConv", inputs, domain=MS, activation=d.pick(["Relu", "Sigmoid", "Tanh"]), **attrs)


@operation("microsoft", 1)
def skip_norm(b: Builder) -> None:
    d, x = b.draw, single(b, rank=3)
    width = b[x].shape[-1]
    other, gamma, beta = b.operand(b[x].shape, "f4"), weight(b, [width]), weight(b, [width])
    if d.chance(0.6):
        inputs = [x, other, gamma, beta, weight(b, [width])][: d.pick([3, 4, 5])]
        b.emit("SkipLayerNormalization", inputs, domain=MS, epsilon=1e-3)
    else:
        b.emit("SkipSimplifiedLayerNormalization", [x, other, gamma], domain=MS, epsilon=1e-3)


@operation("microsoft", 1)
def quantized_function(b: Builder) -> None:
    """QLinearAdd and its like, between floats."""
    d, x = b.draw, single(b)
    if b.opset < 10:
        raise Rejected("QuantizeLinear")
    kind = d.pick(["u1", "i1"])
    one, out = [scale(b), zero(b, kind)], [scale(b), zero(b, kind)]
    q = b.emit("QuantizeLinear", [x, *one])
    op = d.pick(
        ["QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu", "QLinearAveragePool", "QLinearConcat"]
    )
    if op in ("QLinearAdd", "QLinearMul"):
        low = 0 if kind == "u1" else -128
        shape = [1 if d.chance(0.3) else n for n in b[x].shape]
        other = [b.const(d.array(shape, kind, low, low + 255), 0.2), scale(b), zero(b, kind)]
        y = b.emit(op, [q, *one, *other, *out], domain=MS)
    elif op == "QLinearConcat":
        y = b.emit(op, [*out, q, *one, q, scale(b), zero(b, kind)], domain=MS, axis=d.between(0, b[x].ndim - 1))
    elif op == "QLinearAveragePool":
        if b[x].ndim != 4:
            raise Rejected("no image")
        pads = [d.between(0, 1) for _ in range(4)]
        attrs = {"kernel_shape": [d.between(2, 3)] * 2, "ceil_mode": d.pick([None, 0, 1]), "pads": pads}
        y = b.emit(op, [q, *one, *out], domain=MS, count_include_pad=d.pick([None, 0, 1]), **attrs)
    else:
        y = b.emit(op, [q, *one, *out], domain=MS)
    b.emit("DequantizeLinear", [y, *out])


@operation("microsoft", 0.6)
def product_of_integers(b: Builder) -> None:
    """DynamicQuantizeMatMul, or MatMulIntegerToFloat of quantised rows."""
    d, x = b.draw, single(b, 2)
    if not b.has("DynamicQuantizeLinear"):
        raise Rejected("DynamicQuantizeLinear")
    k, n = b[x].shape[-1], d.pick([1, 4, 8, 17])
    w = weights(b, [k, n])
    s, z = b.const(d.array([], "f4", 0.001, 0.01), 0.0), b.const(np.int8(d.between(-3, 3)), 0.0)
    bias = [weight(b, [n])] if d.chance(0.5) else []
    if d.chance(0.5):
        b.emit("DynamicQuantizeMatMul", [x, w, s, z, *bias], domain=MS)
    else:
        q, xs, xz = b.emit_all("DynamicQuantizeLinear", [x], 3)
        b.emit("MatMulIntegerToFloat", [q, w, xs, s, xz, z, *bias], domain=MS)
