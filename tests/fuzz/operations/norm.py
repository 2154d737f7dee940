"""Normalisation."""

from __future__ import annotations

import math

import numpy as np

from ..builder import Builder, Rejected
from ..draw import Array
from ..registry import operation

EPSILONS = (None, 1e-5, 1e-3, 1e-2)


def spread(a: Array, first: int = 2) -> bool:
    """Whether the axes from `first` on hold values that differ: what equal values are divided by is rounding errors."""
    if not a.size:
        return False
    axes = tuple(range(first, a.ndim))
    wide = a.astype("f8")
    with np.errstate(all="ignore"):
        return not bool((wide.std(axes) <= 1e-2 * np.abs(wide).max(axes)).any())


def positive(b: Builder, shape: list[int]) -> str:
    return b.const(b.draw.array(shape, b.dtype, 0.3, 2.0), 0.05)


@operation("norm", 1.2)
def batch_norm(b: Builder) -> None:
    d = b.draw
    x = b.real(where=lambda a: a.ndim >= 2 and a.shape[1] > 0)
    c = [b[x].shape[1]]
    b.emit("BatchNormalization", [x, b.weight(c), b.weight(c), b.weight(c), positive(b, c)], epsilon=d.pick(EPSILONS))


@operation("norm", 0.8)
def instance_norm(b: Builder) -> None:
    x = b.real(b.draw.pick([3, 3, 4, 4, 5]), spread)
    c = [b[x].shape[1]]
    b.emit("InstanceNormalization", [x, b.weight(c), b.weight(c)], epsilon=b.draw.pick(EPSILONS))


@operation("norm", 0.6)
def group_norm(b: Builder) -> None:
    if b.opset < 21:
        raise Rejected("GroupNormalization")
    x = b.real(b.draw.pick([3, 4, 4, 5]), spread)
    c = b[x].shape[1]
    groups = b.draw.pick([g for g in range(1, c + 1) if c % g == 0])
    b.emit("GroupNormalization", [x, b.weight([c]), b.weight([c])], num_groups=groups, epsilon=b.draw.pick(EPSILONS))


@operation("norm", 0.7)
def norm_then_product(b: Builder) -> None:
    """A normalisation whose only reader multiplies its rows."""
    d = b.draw
    x = b.real(d.pick([3, 3, 4]), lambda a: spread(a) and spread(a, -1 % a.ndim))
    c, k = b[x].shape[1], b[x].shape[-1]
    kinds = ["InstanceNormalization", "InstanceNormalization", "LpNormalization"]
    kinds += ["GroupNormalization"] * 2 if b.opset >= 21 else []
    kinds += ["LayerNormalization"] if b.has("LayerNormalization") else []
    kinds += ["RMSNormalization"] if b.has("RMSNormalization") else []
    op = d.pick(kinds)
    if op == "InstanceNormalization":
        y = b.emit(op, [x, b.weight([c]), b.weight([c])])
    elif op == "GroupNormalization":
        y = b.emit(op, [x, b.weight([c]), b.weight([c])], num_groups=d.pick([g for g in range(1, c + 1) if c % g == 0]))
    elif op == "LpNormalization":
        y = b.emit(op, [x])
    else:
        y = b.emit(op, [x, b.weight([k])])
    n = d.pick([1, 4, 8, 16, 17])
    b.emit("MatMul", [y, b.weight([k, n], 1 / math.sqrt(k))])


@operation("norm", 0.8)
def layer_norm(b: Builder) -> None:
    if not b.has("LayerNormalization"):
        raise Rejected("LayerNormalization")
    d, x = b.draw, b.real(where=lambda a: a.ndim > 0 and spread(a, a.ndim - 1))
    axis = d.between(-b[x].ndim, b[x].ndim - 1) if d.chance(0.5) else -1
    shape = list(b[x].shape[axis % b[x].ndim :])
    inputs = [x, b.weight(shape), b.weight(shape)] if d.chance(0.6) else [x, b.weight(shape)]
    outputs = d.pick([1, 1, 1, 1, 3])
    b.emit_all("LayerNormalization", inputs, outputs, axis=axis, epsilon=d.pick(EPSILONS))


@operation("norm", 0.5)
def rms_norm(b: Builder) -> None:
    if not b.has("RMSNormalization"):
        raise Rejected("RMSNormalization")
    d, x = b.draw, b.real(where=lambda a: a.ndim > 0 and a.size > 0)
    axis = d.between(-b[x].ndim, -1) if d.chance(0.5) else -1
    b.emit("RMSNormalization", [x, b.weight(list(b[x].shape[axis:]))], axis=axis, epsilon=d.pick(EPSILONS))


@operation("norm", 0.7)
def norm_written_out(b: Builder) -> None:
    """Layer or RMS normalisation from its parts, as exporters of old opsets write it."""
    d, x = b.draw, b.real(where=lambda a: a.ndim > 0 and spread(a, a.ndim - 1))
    t = b.dtype.type
    axis = [d.between(-b[x].ndim, -1)] if d.chance(0.4) else [-1]

    def mean(v: str) -> str:
        if b.opset >= 18:
            return b.emit("ReduceMean", [v, b.ints(axis, 0.0)])
        return b.emit("ReduceMean", [v], axes=axis)

    centred = b.emit("Sub", [x, mean(x)]) if d.chance(0.6) else x
    square = b.emit("Pow", [centred, b.const(t(2), 0.0)]) if d.chance(0.6) else b.emit("Mul", [centred, centred])
    deviation = b.emit("Sqrt", [b.emit("Add", [mean(square), b.const(t(1e-3), 0.0)])])
    y = b.emit("Div", [centred, deviation])
    if d.chance(0.6):
        y = b.emit("Mul", [y, b.weight(list(b[x].shape[axis[0] :]))])
    if d.chance(0.5):
        b.emit("Add", [y, b.weight([b[x].shape[-1]])])


@operation("norm", 0.4)
def lp_norm(b: Builder) -> None:
    d, x = b.draw, b.real(where=lambda a: a.ndim > 0 and float(np.abs(a).max(initial=0)) > 1e-3)
    b.emit("LpNormalization", [x], axis=d.between(-b[x].ndim, b[x].ndim - 1), p=d.pick([None, 1, 2]))


@operation("norm", 0.3)
def mean_variance(b: Builder) -> None:
    if not b.has("MeanVarianceNormalization"):
        raise Rejected("MeanVarianceNormalization")
    if b.dtype.itemsize == 2:
        raise Rejected("onnxruntime takes the squares of halves in halves")
    b.emit("MeanVarianceNormalization", [b.real(4, lambda a: spread(np.moveaxis(a, 1, 0), 1))])


@operation("norm", 0.3)
def local_response(b: Builder) -> None:
    d, x = b.draw, b.calm(4)
    b.emit(
        "LRN",
        [x],
        size=d.pick([1, 3, 5]),
        alpha=d.pick([None, 1e-3, 0.1]),
        beta=d.pick([None, 0.5]),
        bias=d.pick([None, 2.0]),
    )


@operation("norm", 1)
def softmax(b: Builder) -> None:
    d, x = b.draw, b.calm(where=lambda a: a.ndim > 0)
    op = d.pick(["Softmax", "Softmax", "LogSoftmax", "Hardmax"])
    if op == "Hardmax" and not np.isfinite(b[x]).all():
        raise Rejected("the largest of NaN")
    low = 0 if b.opset < 11 else -b[x].ndim
    b.emit(op, [x], axis=d.between(low, b[x].ndim - 1) if d.chance(0.8) else None)
