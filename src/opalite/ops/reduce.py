"""Reduce, ArgReduce and Extremes: one value from all elements along some axes, or from all."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ir.dtype import DType
from ..ir.tensor_type import TensorType
from .operator import Array, Arrays, Cost, Op, Outs, Types, frozen_op, make_type, moved_bytes, need, present, tensor

Reducer = Callable[[Array, tuple[int, ...]], Array]


def _mean(x: Array, axes: tuple[int, ...]) -> Array:
    if x.dtype.kind == "f" and x.size:
        return np.asarray(np.mean(x, axis=axes, keepdims=True))
    count = math.prod(x.shape[a] for a in axes)
    total = _total(x, axes)
    mean: Array = np.where(count == 0, 0, np.trunc(total / max(count, 1))).astype(x.dtype)
    return mean


def _extreme(x: Array, axes: tuple[int, ...], largest: bool) -> Array:
    """Maximum or minimum, which propagates NaN; of no elements, the identity."""
    if x.dtype.kind == "f":
        start: float | int = -math.inf if largest else math.inf
    elif x.dtype.kind == "b":
        start = not largest
    else:
        info = np.iinfo(x.dtype)
        start = info.min if largest else info.max
    pick = np.max if largest else np.min
    return np.asarray(pick(x, axis=axes, keepdims=True, initial=start))


def _logsumexp(x: Array, axes: tuple[int, ...]) -> Array:
    top = _extreme(x, axes, largest=True)
    shift = np.where(np.isfinite(top), top, 0.0)
    return np.asarray(np.log(np.sum(np.exp(x - shift), axis=axes, keepdims=True)) + shift)


def _total(x: Array, axes: tuple[int, ...], each: Callable[[Array], Array] = np.asarray, by: Any = np.sum) -> Array:
    """The sum of `each` element, or the product by np.prod; 64-bit integers saturate."""
    wrapped = np.asarray(by(each(x), axis=axes, keepdims=True, dtype=x.dtype))
    if x.dtype.kind not in "iu" or x.dtype.itemsize < 8:
        return wrapped
    info, real = np.iinfo(x.dtype), by(each(x.astype(np.float64)), axis=axes, keepdims=True)
    found = np.where(real >= float(info.max), info.max, np.where(real < float(info.min), info.min, wrapped))
    return np.asarray(found, x.dtype)


KINDS: dict[str, Reducer] = {
    "sum": _total,
    "mean": _mean,
    "max": lambda x, axes: _extreme(x, axes, largest=True),
    "min": lambda x, axes: _extreme(x, axes, largest=False),
    "prod": lambda x, axes: _total(x, axes, by=np.prod),
    "l1": lambda x, axes: _total(x, axes, np.abs),
    "l2": lambda x, axes: np.sqrt(_total(x * x, axes)),
    "sumsq": lambda x, axes: _total(x, axes, np.square),
    "logsum": lambda x, axes: np.log(_total(x, axes)),
    "logsumexp": _logsumexp,
}
"""NumPy function of each kind, with reduced axes kept as 1."""


def reduced_shape(shape: Sequence[int], axes: Sequence[int], keepdims: bool) -> tuple[int, ...]:
    """Shape after reducing `axes`."""
    return tuple(1 if i in axes else d for i, d in enumerate(shape) if keepdims or i not in axes)


@frozen_op
class Reduce(Op):
    """One value from all elements along the sorted `axes`; kind: see KINDS. No axes: each element alone.

    64-bit integers saturate, as in onnxruntime; others wrap around. The mean of integers is rounded toward zero. A
    reduction of no elements gives the kind's identity: 0, 1 for prod, the type's lowest value for max and its largest
    for min; the mean of nothing is 0, as in onnxruntime.
    """

    kind: str
    axes: tuple[int, ...]
    keepdims: bool

    takes_epilogue = True

    def check_shape(self, ins: Types) -> None:
        x = tensor(ins, 0, "x")
        need(self.kind in KINDS, f"reduction {self.kind!r} is not one of {', '.join(KINDS)}")
        axes = self.axes
        need(list(axes) == sorted(set(axes)), f"axes {axes} repeat or are not in order")
        need(all(0 <= a < x.rank for a in axes), f"axes {axes} are not axes of {x}")

    def infer_shape(self, ins: Types) -> list[TensorType]:
        x = tensor(ins, 0, "x")
        return [make_type(x.dtype, reduced_shape(x.shape, self.axes, self.keepdims))]

    def reference(self, arrays: Arrays) -> list[Array]:
        (x,) = present(arrays, 1)
        # In float64, so that the reference adds no rounding of its own.
        wide = x.astype(np.float64) if x.dtype.kind == "f" or x.dtype.name == "bfloat16" else x
        with np.errstate(all="ignore"):
            y = KINDS[self.kind](wide, self.axes).astype(x.dtype)
        return [y.reshape(reduced_shape(x.shape, self.axes, self.keepdims))]

    def cost(self, ins: Types, outs: Outs) -> Cost:
        return Cost(1.0 * tensor(ins, 0, "x").count, moved_bytes(ins, outs))


@frozen_op
class ArgReduce(Op):
    """Position of the extreme element. Attributes: kind max or min, axis, keepdims, select_last (among equals)."""

    kind: str
    axis: int
    keepdims: bool
    select_last: bool

    def check_shape(self, ins: Types) -> None:
        x = tensor(ins, 0, "x")
        need(self.kind in ("max", "min"), f"arg-reduction {self.kind!r} is neither max nor min")
        need(0 <= self.axis < x.rank, f"axis {self.axis} is not an axis of {x}")
        rest = math.prod(d for i, d in enumerate(x.shape) if i != self.axis)
        need(x.shape[self.axis] > 0 or not rest, f"axis {self.axis} of {x} has no elements to choose from")

    def infer_shape(self, ins: Types) -> list[TensorType]:
        x = tensor(ins, 0, "x")
        return [make_type(DType.INT64, reduced_shape(x.shape, (self.axis,), self.keepdims))]

    def reference(self, arrays: Arrays) -> list[Array]:
        (x,), axis = present(arrays, 1), self.axis
        shape = reduced_shape(x.shape, (axis,), self.keepdims)
        if not math.prod(shape):
            return [np.zeros(shape, np.int64)]
        pick = np.argmax if self.kind == "max" else np.argmin
        if self.select_last:
            found = x.shape[axis] - 1 - pick(np.flip(x, axis), axis=axis)
        else:
            found = pick(x, axis=axis)
        return [np.asarray(found, np.int64).reshape(shape)]

    def cost(self, ins: Types, outs: Outs) -> Cost:
        return Cost(1.0 * tensor(ins, 0, "x").count, moved_bytes(ins, outs))


@frozen_op
class Extremes(Op):
    """The least and the largest element of x, two scalars, in one pass. A NaN wins; of nothing: infinities."""

    def check_shape(self, ins: Types) -> None:
        x = tensor(ins, 0, "x")
        need(x.dtype.is_float, f"x must hold floats, got {x}")

    def infer_shape(self, ins: Types) -> list[TensorType]:
        y = make_type(tensor(ins, 0, "x").dtype, ())
        return [y, y]

    def reference(self, arrays: Arrays) -> list[Array]:
        (x,) = present(arrays, 1)
        axes = tuple(range(x.ndim))
        return [_extreme(x, axes, largest).reshape(()).astype(x.dtype) for largest in (False, True)]

    def cost(self, ins: Types, outs: Outs) -> Cost:
        return Cost(2.0 * tensor(ins, 0, "x").count, moved_bytes(ins, outs))
