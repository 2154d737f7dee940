"""Gather, GatherElements and GatherND: read elements of x at the positions in a tensor of indices.

Negative indices count from the end. Indices out of range are clamped to the nearest end; for host-only types they are
rejected.
"""

from __future__ import annotations

import math

import numpy as np

from ..errors import ShapeError
from ..ir.dtype import DType
from ..ir.tensor_type import TensorType
from .operator import Array, Arrays, Cost, Op, Outs, Types, frozen_op, make_type, need, present, tensor


def check_indices(ins: Types) -> TensorType:
    """The type of input 1; ShapeError unless it is i32 or i64."""
    t = tensor(ins, 1, "indices")
    need(t.dtype in (DType.INT32, DType.INT64), f"indices must be i32 or i64, got {t}")
    return t


def check_axis(axis: int, x: TensorType) -> None:
    """ShapeError unless `axis` is an axis of `x`, counted from the front."""
    need(0 <= axis < x.rank, f"axis {axis} is outside [0, {x.rank - 1}] for x {x}")


def clamp_indices(indices: Array, size: int) -> Array:
    """Positions in [0, size) for `indices` along an axis of `size` elements."""
    at = indices.astype(np.int64)
    return np.clip(np.where(at < 0, at + size, at), 0, size - 1)


def places_in(x: Array, indices: Array, size: int) -> Array:
    """`clamp_indices` for reading `x`; indices outside it raise ShapeError for host-only types, such as text."""
    if not DType.of(x).on_device:
        check_places(indices, size)
    return clamp_indices(indices, size)


def check_places(indices: Array, size: int) -> None:
    """ShapeError if an index is outside an axis of `size`."""
    outside = indices[(indices < -size) | (indices >= size)]
    if outside.size:
        raise ShapeError(f"an index is {int(outside[0])}; expected {-size} to {size - 1} for an axis of size {size}")


def _check_axis_picks(axis: int, x: TensorType, indices: TensorType) -> None:
    check_axis(axis, x)
    fits = x.shape[axis] > 0 or indices.count == 0
    need(fits, f"indices {indices} pick from axis {axis} of x {x}, which is empty")


class _Pick(Op):
    """Base class of operators that read selected elements only."""

    __slots__ = ()

    arity = 2

    def cost(self, ins: Types, outs: Outs) -> Cost:
        indices = tensor(ins, 1, "indices")
        moved = 2.0 * outs[0].count * outs[0].storage.size + indices.count * indices.storage.size
        return Cost(1.0 * outs[0].count, moved)


@frozen_op
class Gather(_Pick):
    """y[o, i, n] = x[o, indices[i], n]: `indices`' shape takes the place of x's axis `axis`.

    Inputs x (any type), indices (i32 or i64, any shape).
    """

    axis: int

    def check_shape(self, ins: Types) -> None:
        _check_axis_picks(self.axis, tensor(ins, 0, "x"), check_indices(ins))

    def infer_shape(self, ins: Types) -> list[TensorType]:
        x, indices, axis = tensor(ins, 0, "x"), tensor(ins, 1, "indices"), self.axis
        return [make_type(x.dtype, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))]

    def reference(self, arrays: Arrays) -> list[Array]:
        x, indices = present(arrays, 2)
        found = np.take(x, places_in(x, indices, x.shape[self.axis]), self.axis)
        return [np.asarray(found, x.dtype)]  # NumPy returns a str for one element


@frozen_op
class GatherElements(_Pick):
    """y[i0, .., ik, ..] = x[i0, .., indices[i0, .., ik, ..], ..], the index standing at position `axis`.

    Inputs x (any type), indices (i32 or i64) of x's rank, along the other axes at most as large as x.
    """

    axis: int

    def check_shape(self, ins: Types) -> None:
        x, indices = tensor(ins, 0, "x"), check_indices(ins)
        check_axis(self.axis, x)
        check_element_indices(x, indices, self.axis)
        _check_axis_picks(self.axis, x, indices)

    def infer_shape(self, ins: Types) -> list[TensorType]:
        return [make_type(tensor(ins, 0, "x").dtype, tensor(ins, 1, "indices").shape)]

    def reference(self, arrays: Arrays) -> list[Array]:
        x, indices = present(arrays, 2)
        at = element_places(indices)
        at[self.axis] = places_in(x, indices, x.shape[self.axis])
        return [x[tuple(at)]]


def check_element_indices(x: TensorType, indices: TensorType, axis: int) -> None:
    """ShapeError unless `indices` has x's rank and no larger sizes than x on other axes than `axis`."""
    need(indices.rank == x.rank, f"indices must have x's rank {x.rank}, got {indices} for x {x}")
    need(
        all(i <= d for a, (i, d) in enumerate(zip(indices.shape, x.shape, strict=True)) if a != axis),
        f"indices {indices} are larger than x {x} along an axis other than {axis}",
    )


def element_places(indices: Array) -> list[Array]:
    """Coordinates of every element of `indices`, an array for each axis; the caller replaces that of its axis."""
    return list(np.indices(indices.shape, sparse=True))


@frozen_op
class GatherND(_Pick):
    """y[b, i] = x[b, indices[b, i]]: the last axis of `indices` holds coordinates of x after `batch_dims` common axes.

    Inputs x (any type), indices (i32 or i64) [b.., i.., q]; y is [b.., i.., what q coordinates leave of x].
    """

    batch_dims: int

    def check_shape(self, ins: Types) -> None:
        x, indices, batch = tensor(ins, 0, "x"), check_indices(ins), self.batch_dims
        need(indices.rank >= 1, f"indices must have at least one axis, got {indices}")
        fits = 0 <= batch < min(x.rank + 1, indices.rank)
        need(fits, f"batch_dims {batch} does not fit x {x} and indices {indices}")
        fits = x.shape[:batch] == indices.shape[:batch]
        need(fits, f"the first {batch} sizes of x {x} and indices {indices} must agree (batch_dims)")
        depth, rest = indices.shape[-1], x.rank - batch
        held = f"indices {indices} hold {depth} coordinates"
        need(depth <= rest, f"{held}, but x {x} has {rest} axes after batch_dims {batch}")
        fits = all(x.shape[batch : batch + depth]) or math.prod(indices.shape[:-1]) == 0
        need(fits, f"indices {indices} pick from axes of x {x} that are empty")

    def infer_shape(self, ins: Types) -> list[TensorType]:
        x, indices = tensor(ins, 0, "x"), tensor(ins, 1, "indices")
        rest = x.shape[self.batch_dims + indices.shape[-1] :]
        return [make_type(x.dtype, (*indices.shape[:-1], *rest))]

    def reference(self, arrays: Arrays) -> list[Array]:
        (x, indices), batch = present(arrays, 2), self.batch_dims
        where = [np.arange(d).reshape(-1, *(1,) * (indices.ndim - 2 - a)) for a, d in enumerate(indices.shape[:batch])]
        where += [places_in(x, indices[..., k], x.shape[batch + k]) for k in range(indices.shape[-1])]
        if not where:
            return [np.array(np.broadcast_to(x, (*indices.shape[:-1], *x.shape)))]
        shape = (*indices.shape[:-1], *x.shape[batch + indices.shape[-1] :])
        return [np.array(np.broadcast_to(np.asarray(x[tuple(where)], x.dtype), shape))]
