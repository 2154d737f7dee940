"""Operators that few models have."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..builder import Builder, Rejected
from ..registry import operation
from .quantize import scale, zero

MS = "com.microsoft"


def asked(b: Builder, op: str) -> None:
    if not b.has(op):
        raise Rejected(op)


@operation("rare", 0.5)
def columns_to_image(b: Builder) -> None:
    """Col2Im, in two dimensions: in others onnxruntime pads amiss."""
    asked(b, "Col2Im")
    if b.dtype.itemsize != 4 or b.special:
        raise Rejected("onnxruntime has floats alone; a sum of products with zeros spreads what is not finite")
    d, rank = b.draw, 2
    image = [d.between(3, 6) for _ in range(rank)]
    block, strides = [d.between(1, 3) for _ in range(rank)], [d.between(1, 2) for _ in range(rank)]
    dilations, pads = [1 if d.chance(0.7) else 2 for _ in range(rank)], [d.between(0, 1) for _ in range(2 * rank)]
    counts = []
    for i in range(rank):
        room = image[i] + pads[i] + pads[rank + i] - dilations[i] * (block[i] - 1) - 1
        if room < 0:
            raise Rejected("no room for a block")
        counts.append(room // strides[i] + 1)
    x = b.operand([d.between(1, 2), d.between(1, 3) * int(np.prod(block)), int(np.prod(counts))])
    b.emit("Col2Im", [x, b.ints(image), b.ints(block)], strides=strides, pads=pads, dilations=dilations)


@operation("rare", 0.5)
def grid_of_angles(b: Builder) -> None:
    """AffineGrid, and what GridSample reads there."""
    asked(b, "AffineGrid")
    if b.dtype.itemsize != 4 or b.special:
        raise Rejected("onnxruntime samples floats alone")
    d, rank = b.draw, b.draw.pick([2, 2, 3])
    # Where a corner of one pixel lies is not said: PyTorch takes its middle, onnxruntime its beginning.
    n, c, size = d.between(1, 2), d.between(1, 3), [d.between(2, 6) for _ in range(rank)]
    theta = b.operand([n, rank, rank + 1])
    grid = b.emit("AffineGrid", [theta, b.ints([n, c, *size])], align_corners=d.pick([None, 0, 1]))
    if rank == 2 and d.chance(0.6):
        x = b.operand([n, c, d.between(1, 6), d.between(1, 6)])
        b.emit("GridSample", [x, grid], align_corners=d.between(0, 1))


@operation("rare", 0.5)
def unpooled(b: Builder) -> None:
    """MaxPool's places, by which MaxUnpool puts numbers back.

    Of even sizes: for others onnxruntime counts places in the whole output, ONNX in what the windows cover.
    """
    if b.dtype.itemsize != 4 or b.special or b.opset < 11:
        raise Rejected("onnxruntime has floats alone")
    d = b.draw
    x = b.const(d.array([d.between(1, 2), d.between(1, 4), 2 * d.between(1, 6), 2 * d.between(1, 6)], "f4"), 1.0)
    attrs: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}
    y, places = b.emit_all("MaxPool", [x], 2, **attrs)
    shape = [b.ints(b[x].shape)] if d.chance(0.5) else []
    b.emit("MaxUnpool", [y, places, *shape], **attrs)


@operation("rare", 0.5)
def deformed(b: Builder) -> None:
    """DeformConv with groups of filters and offsets, masks and a bias."""
    asked(b, "DeformConv")
    if b.dtype.itemsize != 4 or b.special:
        raise Rejected("onnxruntime has floats alone")
    d = b.draw
    n, group, offsets, k = d.between(1, 2), d.pick([1, 1, 2]), d.pick([1, 1, 2]), d.pick([1, 2, 3])
    c, out, h, w = 2 * group * d.between(1, 2), group * d.between(1, 3), d.between(3, 7), d.between(3, 7)
    pad, stride, dilation = d.between(0, 1), d.between(1, 2), d.pick([1, 1, 2])
    if c % offsets or min(h, w) + 2 * pad < dilation * (k - 1) + 1:
        raise Rejected("sizes that do not fit")
    rows, columns = ((s + 2 * pad - dilation * (k - 1) - 1) // stride + 1 for s in (h, w))
    x, weight = b.operand([n, c, h, w]), b.weight([out, c // group, k, k], 0.3)
    inputs = [x, weight, b.operand([n, 2 * offsets * k * k, rows, columns])]
    if d.chance(0.6):
        inputs.append(b.weight([out]) if d.chance(0.5) else "")
        inputs.append(b.operand([n, offsets * k * k, rows, columns], None, 0, 1))
    attrs = {"group": group, "offset_group": offsets, "pads": [pad] * 4, "strides": [stride] * 2}
    b.emit("DeformConv", inputs, dilations=[dilation] * 2, **attrs)


@operation("rare", 0.5)
def loss(b: Builder) -> None:
    """Losses of classes, weighted, summed, or with a class that counts for nothing."""
    if b.opset < 13 or b.special or b.dtype.itemsize == 2:
        raise Rejected("losses")
    d = b.draw
    n, c, rest = d.between(1, 4), d.between(2, 6), d.shape(d.between(0, 2), most=20)
    if not all(rest):
        raise Rejected("nothing to average")
    x = b.operand([n, c, *rest])
    target = d.array([n, *rest], d.pick(["i4", "i8"]), 0, c - 1)
    inputs = [x, b.const(target, 0.5)] + ([b.const(d.array([c], b.dtype, 0.5, 2), 0.1)] if d.chance(0.4) else [])
    attrs = {"reduction": d.pick([None, "none", "sum", "mean"])}
    if d.chance(0.3) and (target != 0).any():
        attrs["ignore_index"] = d.pick([0, -1])
    if d.chance(0.5):
        b.emit_all("SoftmaxCrossEntropyLoss", inputs, d.between(1, 2), **attrs)
    else:
        b.emit("NegativeLogLikelihoodLoss", inputs, **attrs)


@operation("rare", 0.5)
def there_or_not(b: Builder) -> None:
    """Optional values, which are there."""
    asked(b, "OptionalHasElement")
    from onnx import helper

    x, held, y, has = b.tensor([b.dtype, "i8"]), b.name("o"), b.name("v"), b.name("v")
    nodes = [
        helper.make_node("Optional", [x], [held], name=f"Optional_{held}"),
        helper.make_node("OptionalHasElement", [held], [has], name=f"OptionalHasElement_{has}"),
        helper.make_node("OptionalGetElement", [held], [y], name=f"OptionalGetElement_{y}"),
    ]
    b.add(nodes, [y, has])


@operation("microsoft", 0.5)
def fused_sums(b: Builder) -> None:
    """BiasSoftmax, FusedGemm, TransposeMatMul, SimplifiedLayerNormalization, EmbedLayerNormalization."""
    d = b.draw
    x = b.tensor(["f4"], None, lambda a: a.ndim >= 2 and 0 < a.size <= 3000 and bool(np.isfinite(a).all()))
    shape = b[x].shape
    k, n = shape[-1], d.pick([1, 3, 8])
    op = d.pick(["BiasSoftmax", "FusedGemm", "TransposeMatMul", "SimplifiedLayerNormalization", "Embed"])
    if op == "BiasSoftmax":
        inner = d.between(0, 1)
        bias = [1, *shape[1:]] if inner else shape
        b.emit(op, [x, b.operand(bias, "f4")], domain=MS, axis=-1, is_inner_broadcast=inner)
    elif op == "FusedGemm":
        if len(shape) != 2:
            raise Rejected("a matrix")
        bias = [b.const(d.array([n], "f4"), 0.1)] if d.chance(0.6) else []
        how = {"activation": d.pick(["Relu", "LeakyRelu", "Tanh"]), "alpha": d.pick([None, 0.5])}
        b.emit(op, [x, b.const(d.array([k, n], "f4"), 0.1), *bias], domain=MS, **how)
    elif op == "TransposeMatMul":
        b.emit(op, [x, b.const(d.array([n, k], "f4"), 0.1)], domain=MS, transB=1, alpha=d.pick([None, 0.5]))
    elif op == "SimplifiedLayerNormalization":
        b.emit(op, [x, b.const(d.array([k], "f4"), 0.1)], axis=-1, epsilon=1e-3)
    else:
        rows, words, width = d.between(1, 6), d.between(3, 9), d.pick([4, 8])
        ids = [b.const(d.array([2, rows], "i4", 0, top), 1.0) for top in (words - 1, 1)]
        ids[1] = ids[1] if (segments := d.chance(0.6)) else ""
        tables = [b.const(d.array([m, width], "f4"), 0.0) for m in (words, rows + 2, 2)]
        tables[2] = tables[2] if segments else ""
        norms = [b.const(d.array([width], "f4"), 0.0) for _ in range(2)]
        b.emit_all("EmbedLayerNormalization", [*ids, *tables, *norms], 2, domain=MS)


@operation("microsoft", 0.5)
def quantized_rest(b: Builder) -> None:
    """QGemm, QLinearGlobalAveragePool, QLinearWhere, QLinearReduceMean, between floats.

    Not QLinearSoftmax, which onnxruntime rounds down.
    """
    d = b.draw
    x = b.tensor(["f4"], None, lambda a: a.ndim >= 2 and 0 < a.size <= 3000 and bool(np.isfinite(a).all()))
    if b.opset < 10:
        raise Rejected("QuantizeLinear")
    kind, shape = d.pick(["u1", "i1"]), b[x].shape
    one, out = [scale(b), zero(b, kind)], [scale(b), zero(b, kind)]
    q = b.emit("QuantizeLinear", [x, *one])
    op = d.pick(["QGemm", "QLinearGlobalAveragePool", "QLinearWhere", "QLinearReduceMean"])
    if op == "QGemm":
        if len(shape) != 2:
            raise Rejected("a matrix")
        n = d.pick([1, 4, 9])
        w, bias = d.array([shape[1], n], "i1", -60, 60), d.array([n], "i4", -200, 200)
        inputs = [q, *one, b.const(w, 0.0), scale(b), b.const(np.int8(0), 0.0), b.const(bias, 0.0), *out]
        y = b.emit(op, inputs, domain=MS, transA=0, transB=0)
    elif op == "QLinearGlobalAveragePool":
        if len(shape) != 4:
            raise Rejected("an image")
        y = b.emit(op, [q, *one, *out], domain=MS, channels_last=d.between(0, 1))
    elif op == "QLinearWhere":
        low = 0 if kind == "u1" else -128
        other = [b.const(d.array(shape, kind, low, low + 255), 0.2), scale(b), zero(b, kind)]
        y = b.emit(op, [b.operand(shape, "?"), q, *one, *other, *out], domain=MS)
    else:
        y = b.emit(op, [q, *one, *out], domain=MS, axes=[d.between(0, len(shape) - 1)], keepdims=d.between(0, 1))
    b.emit("DequantizeLinear", [y, *out])
