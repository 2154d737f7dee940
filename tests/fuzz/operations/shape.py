"""Shape arithmetic, as exporters of models with open dimensions write it."""

from __future__ import annotations

import numpy as np
import onnx.numpy_helper as nph

from ..builder import Builder, Rejected
from ..registry import operation
from .movement import some


def dimension(b: Builder, shape: str, axis: int) -> str:
    """One entry of a shape, as a vector."""
    taken = b.emit("Gather", [shape, b.const(np.int64(axis), 0.0)], axis=0)
    if b.opset < 13:
        return b.emit("Unsqueeze", [taken], axes=[0])
    return b.emit("Unsqueeze", [taken, b.ints([0], 0.0)])


@operation("shape", 1.5)
def reshape_by_shape(b: Builder) -> None:
    """Shape, Gather, Concat, Reshape: the last axes joined."""
    d, x = b.draw, b.real(where=lambda a: a.ndim >= 2 and a.size > 0)
    shape = b.emit("Shape", [x])
    keep = d.between(1, b[x].ndim - 1)
    entries = [dimension(b, shape, i) for i in range(keep)]
    b.emit("Reshape", [x, b.emit("Concat", [*entries, b.ints([-1], 0.0)], axis=0)])


@operation("shape", 0.8)
def product_of_sizes(b: Builder) -> None:
    """A size computed from two: Mul, or Div by 2, before an Expand or a Reshape."""
    x = b.real(where=lambda a: a.ndim >= 2 and a.size > 0)
    shape = b.emit("Shape", [x])
    both = b.emit("Mul", [dimension(b, shape, 0), dimension(b, shape, 1)])
    b.emit("Reshape", [x, b.emit("Concat", [both, b.ints([-1], 0.0)], axis=0)])


@operation("shape", 0.5)
def expand_by_shape(b: Builder) -> None:
    if not b.has("Expand"):
        raise Rejected("Expand")
    like = some(b)
    b.emit("Expand", [b.partner(like), b.emit("Shape", [like])])


@operation("shape", 0.5)
def shape_of_part(b: Builder) -> None:
    d, x = b.draw, some(b)
    if b.opset >= 15 and d.chance(0.6):
        b.emit("Shape", [x], start=d.between(-3, 2), end=d.between(-1, 4))
    else:
        b.emit("Shape", [x])


@operation("shape", 0.3)
def size_of(b: Builder) -> None:
    b.emit("Size", [some(b)])


@operation("shape", 0.5)
def filled(b: Builder) -> None:
    if not b.has("ConstantOfShape"):
        raise Rejected("ConstantOfShape")
    d = b.draw
    value = nph.from_array(d.array([1], d.pick([b.dtype, "i8"]))) if d.chance(0.7) else None
    shape = b.emit("Shape", [some(b)]) if d.chance(0.4) else b.ints(d.shape(most=400))
    b.emit("ConstantOfShape", [shape], value=value)


@operation("shape", 0.4)
def slice_by_data(b: Builder) -> None:
    """As many rows as a tensor says: the shape depends on data."""
    if b.opset < 10:
        raise Rejected("Slice")
    d, x = b.draw, b.real(where=lambda a: a.ndim >= 1 and a.shape[0] > 1)
    count = b.const(np.asarray([d.between(1, b[x].shape[0])], "i8"), 0.6)
    b.emit("Slice", [x, b.ints([0], 0.0), count, b.ints([0], 0.0)])


@operation("shape", 0.3)
def range_of_size(b: Builder) -> None:
    """Positions 0 .. n - 1 of an axis, as a float."""
    if not b.has("Range"):
        raise Rejected("Range")
    x = b.real(where=lambda a: a.ndim >= 1)
    n = b.emit("Gather", [b.emit("Shape", [x]), b.const(np.int64(-1), 0.0)], axis=0)
    b.emit("Range", [b.const(np.int64(0), 0.0), n, b.const(np.int64(1), 0.0)])
