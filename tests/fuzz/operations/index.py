"""Gathering, scattering and choosing by index."""

from __future__ import annotations

import numpy as np

from ..builder import Builder, Rejected
from ..draw import Array
from ..registry import operation
from .movement import signed, some


def indices(b: Builder, shape: list[int], size: int, unique_axis: int | None = None) -> str:
    """Indices below `size`, some negative. unique_axis: where no two along it may be equal."""
    d = b.draw
    if unique_axis is None:
        a = d.array(shape, "i8", 0, size - 1)
    else:
        a = np.argsort(d.rng.random([size if i == unique_axis else n for i, n in enumerate(shape)]), axis=unique_axis)
        a = a.take(range(shape[unique_axis]), axis=unique_axis)
    if b.opset >= 11 and d.chance(0.3):
        a = np.where(d.rng.random(a.shape) < 0.4, a - size, a)
    return b.const(a.astype(d.pick(["i8", "i8", "i4"])), 0.15)


@operation("index", 1.5)
def gather(b: Builder) -> None:
    d, x = b.draw, some(b, least=1)
    axis = d.between(0, b[x].ndim - 1)
    if not b[x].shape[axis]:
        raise Rejected("nothing to gather")
    i = indices(b, d.shape(d.pick([0, 1, 1, 2]), most=30), b[x].shape[axis])
    b.emit("Gather", [x, i], axis=signed(b, axis, b[x].ndim))


@operation("index", 0.7)
def gather_elements(b: Builder) -> None:
    if not b.has("GatherElements"):
        raise Rejected("GatherElements")
    d, x = b.draw, some(b, least=1)
    axis = d.between(0, b[x].ndim - 1)
    shape = [d.between(1, 6) if i == axis else d.between(min(1, n), n) for i, n in enumerate(b[x].shape)]
    if not b[x].size:
        raise Rejected("nothing to gather")
    b.emit("GatherElements", [x, indices(b, shape, b[x].shape[axis])], axis=signed(b, axis, b[x].ndim))


@operation("index", 0.7)
def gather_nd(b: Builder) -> None:
    if not b.has("GatherND"):
        raise Rejected("GatherND")
    d, x = b.draw, b.real(where=lambda a: a.ndim > 0 and a.size > 0)
    batch = d.between(0, 1) if b.opset >= 12 and b[x].ndim > 1 else 0
    depth = d.between(1, b[x].ndim - batch)
    shape = [*b[x].shape[:batch], *d.shape(d.between(0, 2), most=20)]
    if 0 in shape:
        raise Rejected("no indices")
    parts = [d.array(shape, "i8", 0, n - 1) for n in b[x].shape[batch : batch + depth]]
    b.emit("GatherND", [x, b.const(np.stack(parts, -1))], batch_dims=batch or None)


@operation("index", 0.7)
def scatter_elements(b: Builder) -> None:
    d, x = b.draw, b.real(where=lambda a: a.ndim > 0 and a.size > 0)
    axis = d.between(0, b[x].ndim - 1)
    shape = [d.between(1, n) for n in b[x].shape]
    op = "ScatterElements" if b.has("ScatterElements") else "Scatter"
    if not b.has(op):
        raise Rejected(op)
    reductions = [None, None] if b.opset < 16 else [None, "none", "add", "mul"]
    reduction = d.pick(reductions + (["max", "min"] if b.opset >= 18 and not b.special else []))
    plain = reduction in (None, "none")
    i = indices(b, shape, b[x].shape[axis], axis if plain else None)
    b.emit(op, [x, i, b.operand(shape, b[x].dtype)], axis=axis, reduction=reduction)


@operation("index", 0.7)
def scatter_nd(b: Builder) -> None:
    if not b.has("ScatterND"):
        raise Rejected("ScatterND")
    d, x = b.draw, b.real(where=lambda a: a.ndim > 0 and a.size > 0)
    depth = d.between(1, b[x].ndim)
    heads = b[x].shape[:depth]
    count = min(d.between(1, 5), int(np.prod(heads)))
    flat = d.rng.permutation(int(np.prod(heads)))[:count]  # no two alike: their order is undefined
    index = np.stack(np.unravel_index(flat, heads), -1).astype("i8")
    reductions = [None] if b.opset < 16 else [None, "none", "add", "mul"] + (["max", "min"] if b.opset >= 18 else [])
    reduction = d.pick(reductions) if not b.special else None
    updates = b.operand([count, *b[x].shape[depth:]], b[x].dtype)
    b.emit("ScatterND", [x, b.const(index, 0.1), updates], reduction=reduction)


@operation("index", 0.5)
def one_hot(b: Builder) -> None:
    if not b.has("OneHot"):
        raise Rejected("OneHot")
    d = b.draw
    depth = d.between(1, 9)
    i = b.tensor(["i8"], where=lambda a: a.ndim <= 3 and a.size <= 500)
    values = b.const(np.asarray([0, d.pick([1, 2, 0.5])], b.dtype))
    axis = d.pick([-1, 0, b[i].ndim])
    b.emit("OneHot", [i, b.const(np.int64(depth)), values], axis=axis)


@operation("index", 0.4)
def compress(b: Builder) -> None:
    """Its output's shape depends on data."""
    if not b.has("Compress"):
        raise Rejected("Compress")
    d, x = b.draw, some(b, least=1)
    axis = d.pick([None, d.between(0, b[x].ndim - 1)])
    count = b[x].size if axis is None else b[x].shape[axis]
    longer = d.between(1, 3) if axis is not None and d.chance(0.2) else 0  # what lies beyond the axis is not read
    b.emit("Compress", [x, b.const(d.array([min(count, 40) + longer], "?"), 0.4)], axis=axis)


def _nearly_zero(a: Array) -> bool:
    return a.dtype.kind == "f" and bool(((np.abs(a) < 1e-4) & (a != 0)).any())


@operation("index", 0.4)
def non_zero(b: Builder) -> None:
    if not b.has("NonZero"):
        raise Rejected("NonZero")
    # Whether what is nearly zero is zero is decided by rounding, and by approximations such as onnxruntime's Sigmoid.
    x = b.tensor([b.dtype, "?", "i8"], where=lambda a: a.ndim > 0 and a.size <= 500 and not _nearly_zero(a))
    b.emit("NonZero", [x])


@operation("index", 0.3)
def unique(b: Builder) -> None:
    if not b.has("Unique"):
        raise Rejected("Unique")
    # Whether two values that are nearly equal are one is decided by rounding.
    d = b.draw
    if d.chance(0.5):
        x = b.input(d.array(d.shape(most=300), "i8", -3, 3).astype(d.pick([b.dtype, np.dtype("i8")])))
    else:
        x = b.tensor([b.dtype, "i8"], where=lambda a: 0 < a.size <= 500 and bool((a * 8 == np.round(a * 8)).all()))
    if not b[x].size:
        raise Rejected("nothing")
    axis = d.pick([None, None, d.between(0, b[x].ndim - 1) if b[x].ndim else None])
    b.emit_all("Unique", [x], d.pick([1, 4]), sorted=d.pick([0, 1]), axis=axis)


@operation("index", 0.2)
def eye_like(b: Builder) -> None:
    if not b.has("EyeLike"):
        raise Rejected("EyeLike")
    d, x = b.draw, b.real(2)
    if d.chance(0.3):  # whose type onnx's inference does not know
        x = b.emit("Gelu", [x], domain="com.microsoft")
    b.emit("EyeLike", [x], k=d.between(-2, 2), dtype=d.pick([None, None, 1, 7]))


@operation("index", 0.3)
def non_max_suppression(b: Builder) -> None:
    if not b.has("NonMaxSuppression"):
        raise Rejected("NonMaxSuppression")
    d = b.draw
    batch, boxes, classes = d.between(1, 2), d.between(1, 9), d.between(1, 3)
    corner = d.array([batch, boxes, 2], "f4", 0, 5)
    both = np.concatenate([corner, corner + d.array([batch, boxes, 2], "f4", 0.5, 4)], -1)
    scores = d.array([batch, classes, boxes], "f4", 0, 1)
    inputs = [b.input(both), b.input(scores), b.const(np.int64(d.between(0, 4)))]
    inputs += [b.const(np.float32(0.5)), b.const(np.float32(0.3))][: d.between(0, 2)]
    b.emit("NonMaxSuppression", inputs, center_point_box=d.pick([None, 0, 1]))
