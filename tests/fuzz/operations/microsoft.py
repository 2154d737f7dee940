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


@operation("microsoft", 0.3)
def inverted(b: Builder) -> None:
    """Inverse of matrices that are far from having none."""
    d, n = b.draw, b.draw.between(1, 7)
    shape = [*(d.between(1, 3) for _ in range(d.between(0, 2))), n, n]
    b.emit("Inverse", [b.const((d.array(shape, "f4") * 0.3 + 2 * np.eye(n)).astype("f4"), 1.0)], domain=MS)


@operation("microsoft", 0.3)
def distances(b: Builder) -> None:
    if b.special:
        raise Rejected("onnxruntime expands the squares, so that what is infinite is no number")
    x = single(b, 2, 2)
    y = b.const(b.draw.array([b.draw.between(1, 9), b[x].shape[1]], "f4"), 0.5)
    b.emit("CDist", [x, y], domain=MS, metric=b.draw.pick(["euclidean", "sqeuclidean"]))


@operation("microsoft", 0.3)
def cropped(b: Builder) -> None:
    d, x = b.draw, single(b, rank=4)
    count = d.between(1, 4)
    rois = d.array([count, 4], "f4", 0.05, 0.95)
    images = np.array([d.between(0, b[x].shape[0] - 1) for _ in range(count)], "i4")
    size = np.array([d.between(1, 6), d.between(1, 6)], "i4")
    inputs = [x, b.const(rois, 0.5), b.const(images, 0.5), b.const(size, 0.0)]
    # The nearest pixel of a place near the middle of two is decided by rounding.
    b.emit("CropAndResize", inputs, domain=MS, extrapolation_value=d.pick([0.0, 2.5]))


@operation("microsoft", 0.3)
def repeated_ngrams(b: Builder) -> None:
    d = b.draw
    ids, scores = [d.between(1, 3), d.between(1, 12)], b.operand([1, d.between(3, 6)], "f4")
    batch = b.emit("Expand", [scores, b.ints([ids[0], b[scores].shape[1]])])
    tokens = b.const(d.array(ids, "i8", 0, b[scores].shape[1] - 1), 0.7)
    b.emit("NGramRepeatBlock", [tokens, batch], domain=MS, ngram_size=d.between(1, 4))


@operation("microsoft", 0.3)
def hashed(b: Builder) -> None:
    d, kind = b.draw, b.draw.pick(["i4", "i8", "f4", "f8"])
    x = b.tensor([kind], None, lambda a: 0 < a.size <= 300)
    y = b.emit("MurmurHash3", [x], domain=MS, seed=d.between(0, 99), positive=0)
    b.emit("Mod", [y, b.const(np.array(97, "i4"), 0.0)])


@operation("microsoft", 0.3)
def unfolded(b: Builder) -> None:
    d, x = b.draw, single(b)
    axis = d.between(0, b[x].ndim - 1)
    b.emit("UnfoldTensor", [x], domain=MS, dim=axis, size=d.between(1, b[x].shape[axis]), step=d.between(1, 3))


@operation("microsoft", 0.2)
def quantized_lstm(b: Builder) -> None:
    """DynamicQuantizeLSTM of few steps: a state that is rounded otherwise differs more with each."""
    if b.special:
        raise Rejected("a range without numbers has no levels")
    d, two = b.draw, b.draw.chance(0.4)
    inputs, hidden, n = d.between(1, 9), d.between(1, 9), 1 + two
    x = b.operand([d.between(1, 3), d.between(1, 2), inputs], "f4")
    parts = []
    for rows in (inputs, hidden):
        shape = [n, 4 * hidden] if d.chance(0.5) else [n]
        zero_points = np.full(shape, 128, "u1")
        parts.append([d.array([n, rows, 4 * hidden], "u1", 0, 255), d.array(shape, "f4", 0.001, 0.004), zero_points])
    (w, ws, wz), (r, rs, rz) = ([b.const(a, 0.0) for a in p] for p in parts)
    bias = b.const(d.array([n, 8 * hidden], "f4"), 0.0)
    attrs = {"hidden_size": hidden, "direction": "bidirectional" if two else d.pick(["forward", "reverse"])}
    b.emit_all("DynamicQuantizeLSTM", [x, w, r, bias, "", "", "", "", ws, wz, rs, rz], 3, domain=MS, **attrs)
