"""ScatterElements and ScatterND: a copy of x with updates at positions from a tensor of indices.

Negative indices count from the end. Updates with indices still outside are dropped, or rejected for host-only types.
Updates of one position are applied in row-major order, so that with reduction "none" the last one wins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..ir.dtype import DType
from ..ir.tensor_type import TensorType
from .conv import compute_dtype
from .gather import check_axis, check_element_indices, check_indices, check_places, element_places
from .operator import Array, Arrays, Cost, Op, Outs, Types, frozen_op, need, present, tensor

REDUCTIONS = ("none", "add", "mul", "max", "min")

_UPDATE: dict[str, np.ufunc] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


@dataclass(frozen=True, slots=True)
class Scatter(Op):
    """Base class of ScatterElements and ScatterND."""

    reduction: str

    arity = 3

    def checked(self, ins: Types) -> tuple[TensorType, TensorType, TensorType]:
        """x, indices and updates. ShapeError unless their types and the reduction fit together."""
        x, indices, updates = tensor(ins, 0, "x"), check_indices(ins), tensor(ins, 2, "updates")
        kind = self.reduction
        need(updates.dtype is x.dtype, f"updates must have x's type {x.dtype}, got {updates}")
        need(kind in REDUCTIONS, f"reduction must be one of {', '.join(REDUCTIONS)}, got '{kind}'")
        is_number = x.dtype.is_float or x.dtype.is_int or x.dtype is DType.BOOL
        need(kind == "none" or is_number, f"reduction '{kind}' needs numbers, got x {x}")
        return x, indices, updates

    def cost(self, ins: Types, outs: Outs) -> Cost:
        x, indices, updates = tensor(ins, 0, "x"), tensor(ins, 1, "indices"), tensor(ins, 2, "updates")
        moved = 2.0 * x.count * x.storage.size + 3.0 * updates.count * x.storage.size
        return Cost(1.0 * updates.count, moved + indices.count * indices.storage.size)


def _apply(x: Array, places: Sequence[Array], updates: Array, reduction: str) -> Array:
    """A copy of `x` with `updates` [count, ...] at the coordinates `places` (each of [count]) of its first axes."""
    if not DType.of(x).on_device:
        for p, d in zip(places, x.shape, strict=False):
            check_places(p, d)
    at = [np.where(p < 0, p + d, p) for p, d in zip(places, x.shape, strict=False)]
    inside = np.ones(len(updates), bool)
    for p, d in zip(at, x.shape, strict=False):
        inside &= (p >= 0) & (p < d)
    where = tuple(p[inside] for p in at)
    if reduction == "none":
        y = x.copy()
        y[where] = updates[inside]
        return y
    acc = compute_dtype(x.dtype)
    y = x.astype(acc)
    with np.errstate(all="ignore"):
        _UPDATE[reduction].at(y, where, updates[inside].astype(acc))
    return y.astype(x.dtype)


@frozen_op
class ScatterElements(Scatter):
    """y = x; y[i0, .., indices[i0, .., ik, ..], ..] op= updates[i0, .., ik, ..], the index standing at position `axis`.

    Inputs x, indices (i32 or i64) of x's rank and along the other axes at most as large as x, updates of indices'
    shape. Attributes: axis, reduction ("none", "add", "mul", "max" or "min"; of booleans "add" is or, "mul" is and).
    """

    axis: int

    def check_shape(self, ins: Types) -> None:
        x, indices, updates = self.checked(ins)
        check_axis(self.axis, x)
        check_element_indices(x, indices, self.axis)
        need(updates.shape == indices.shape, f"updates must have the shape of indices {indices}, got {updates}")

    def reference(self, arrays: Arrays) -> list[Array]:
        x, indices, updates = present(arrays, 3)
        at = element_places(indices)
        at[self.axis] = indices.astype(np.int64)
        places = [np.broadcast_to(a, indices.shape).ravel() for a in at]
        return [_apply(x, places, updates.ravel(), self.reduction)]


@frozen_op
class ScatterND(Scatter):
    """y = x; y[indices[i]] op= updates[i]: the last axis of `indices` holds coordinates of x's first axes.

    Inputs x, indices (i32 or i64) [i.., q], updates [i.., what q coordinates leave of x]. Attributes: reduction as
    ScatterElements'.
    """

    def check_shape(self, ins: Types) -> None:
        x, indices, updates = self.checked(ins)
        need(indices.rank >= 1, f"indices must have at least one axis, got {indices}")
        depth = indices.shape[-1]
        need(depth <= x.rank, f"indices {indices} hold {depth} coordinates, but x {x} has {x.rank} axes")
        want = (*indices.shape[:-1], *x.shape[depth:])
        need(updates.shape == want, f"updates must have shape {want} for x {x} and indices {indices}, got {updates}")

    def reference(self, arrays: Arrays) -> list[Array]:
        x, indices, updates = present(arrays, 3)
        depth = indices.shape[-1]
        count = math.prod(indices.shape[:-1])
        rows = updates.reshape(count, *x.shape[depth:])
        if depth == 0:
            # No coordinates: every update covers the whole tensor.
            return [_apply(x[None], [np.zeros(count, np.int64)], rows, self.reduction)[0]]
        places = list(indices.reshape(count, depth).astype(np.int64).T)
        return [_apply(x, places, rows, self.reduction)]
