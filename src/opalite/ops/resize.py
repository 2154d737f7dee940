"""Resize: interpolation along any axes, with all of ONNX's modes and coordinate transformations."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..ir.symbols import is_symbolic_float
from ..ir.tensor_type import Shape, TensorType
from .conv import compute_dtype
from .operator import Array, Arrays, Cost, Op, Outs, Types, frozen_op, make_type, moved_bytes, need, present, tensor
from .resize_weights import COORDINATES, MODES, NEAREST_MODES, NEAREST_UNSPECIFIED, Taps, axis_taps, is_untouched


@frozen_op
class Resize(Op):
    """y[o0, o1, ..] = sum over taps of the product of their weights along each axis times x at their positions.

    Attributes: sizes (y's shape); scales (a float for each axis: y's size / x's, or the model's number); mode
    ("nearest", "linear", "cubic"); coordinate (one of COORDINATES); nearest_mode (one of NEAREST_MODES, or
    NEAREST_UNSPECIFIED); cubic_a; exclude_outside (cubic and antialias: positions outside x have weight 0); antialias
    (linear and cubic: a wider filter when shrinking); roi (starts, then ends, in fractions of x) and extrapolation (the
    value outside x), both for tf_crop_and_resize. Interpolated types are floats; nearest accepts every type.
    """

    sizes: Shape
    scales: tuple[float, ...]
    mode: str
    coordinate: str
    nearest_mode: str
    cubic_a: float
    exclude_outside: bool
    antialias: bool
    roi: tuple[float, ...] | None
    extrapolation: float

    def crop(self, axis: int) -> tuple[float, float]:
        """Begin and end of the resized part of x along `axis`, in fractions of x."""
        if self.roi is None or self.coordinate != "tf_crop_and_resize":
            return 0, 1
        return self.roi[axis], self.roi[axis + len(self.sizes)]

    def check_shape(self, ins: Types) -> None:
        x = tensor(ins, 0, "x")
        known_modes = {"mode": MODES, "coordinate": COORDINATES, "nearest_mode": (*NEAREST_MODES, NEAREST_UNSPECIFIED)}
        for key, known in known_modes.items():
            name = getattr(self, key)
            need(name in known, f"{key} must be one of {', '.join(known)}, got '{name}'")
        for key, numbers in (("sizes", self.sizes), ("scales", self.scales)):
            need(len(numbers) == x.rank, f"{key} must hold {x.rank} numbers for x {x}, got {numbers}")
        need(all(0 < s < math.inf for s in self.scales), f"scales must be positive, got {self.scales}")
        plain = [v for v in (self.cubic_a, *(self.roi or ())) if not is_symbolic_float(v)]
        need(all(map(math.isfinite, plain)), f"cubic_a and roi must be finite, got {plain}")
        serves = self.mode == "nearest" or x.dtype.is_float
        need(serves, f"mode '{self.mode}' interpolates floats; cast x {x} first")
        need(not self.antialias or self.mode != "nearest", "antialias needs mode linear or cubic, got nearest")
        if self.coordinate == "tf_crop_and_resize":
            fits = self.roi is not None and len(self.roi) == 2 * x.rank
            need(fits, f"tf_crop_and_resize needs {2 * x.rank} numbers in roi for x {x}, got {self.roi}")
        for axis, (d, o) in enumerate(zip(x.shape, self.sizes, strict=True)):
            need(d > 0 or o == 0, f"axis {axis} of x {x} is empty and cannot be resized to {o}")
            fits = o == d or not is_untouched(self, axis)
            need(fits, f"axis {axis} of x {x} has scale 1 but size {o} in the output")

    def infer_shape(self, ins: Types) -> list[TensorType]:
        return [make_type(tensor(ins, 0, "x").dtype, self.sizes)]

    def reference(self, arrays: Arrays) -> list[Array]:
        (x,) = present(arrays, 1)
        taps = resized_axes(self, x.shape)
        if not taps:
            return [x.copy()]
        outside = _outside(taps, self.sizes)
        if self.mode == "nearest":
            y = x
            for axis, t in taps.items():
                y = np.take(y, t.index[:, 0], axis)
        else:
            y = _weighted(x.astype(compute_dtype(x.dtype)), taps, self.sizes).astype(x.dtype)
        return [np.where(outside, np.asarray(self.extrapolation).astype(x.dtype), y)]

    def cost(self, ins: Types, outs: Outs) -> Cost:
        x = tensor(ins, 0, "x")
        scales = [self.scales[axis] for axis in range(x.rank) if not is_untouched(self, axis)]
        each = [taps_of(self) * (max(1.0, 1 / scale) if self.antialias else 1.0) for scale in scales]
        return Cost(2.0 * outs[0].count * math.prod(each), moved_bytes(ins, outs))


def resized_axes(op: Resize, shape: Sequence[int]) -> dict[int, Taps]:
    """Taps of every axis of x (of `shape`) that is not copied unchanged."""
    return {axis: axis_taps(op, axis, d) for axis, d in enumerate(shape) if not is_untouched(op, axis)}


def _outside(taps: dict[int, Taps], sizes: Sequence[int]) -> Array:
    """Mask of outputs with the extrapolation value: bool, broadcasts to `sizes`."""
    outside = np.zeros((1,) * len(sizes), bool)
    for axis, t in taps.items():
        outside = outside | ~t.inside.reshape([-1 if a == axis else 1 for a in range(len(sizes))])
    return outside


def _weighted(x: Array, taps: dict[int, Taps], sizes: Sequence[int]) -> Array:
    y = np.zeros(sizes, x.dtype)
    for combination in itertools.product(*(range(t.index.shape[1]) for t in taps.values())):
        part, weight = x, np.ones((1,) * x.ndim, x.dtype)
        for (axis, t), k in zip(taps.items(), combination, strict=True):
            part = np.take(part, t.index[:, k], axis)
            weight = weight * t.weight[:, k].reshape([-1 if a == axis else 1 for a in range(x.ndim)])
        y += weight * part
    return y


# Tables that kernels read: offsets in the input and weights for each output position


COPIED = -1
"""`taps` of an axis that is copied unchanged, with its positions in the table."""


@dataclass(frozen=True)
class Axis:
    """One axis as kernels see it: sizes in x and y.

    taps: the number of the axis of x, from 1 on; 0 if it is copied and has no entries in the table.
    """

    size: int
    count: int
    taps: int


def merged_axes(op: Resize, sizes: Sequence[int], counts: Sequence[int], rank: int = 0) -> list[Axis]:
    """Axes with copied neighbours merged into one; at least one.

    sizes, counts: of x and y as stored. rank: pad with axes of one element to this number, and give the last axis
    entries in any case; 0: neither.
    """
    merged: list[Axis] = []
    for a, (size, count) in enumerate(zip(sizes, counts, strict=True)):
        if (copied := is_untouched(op, a)) and merged and not merged[-1].taps:
            merged[-1] = Axis(merged[-1].size * size, merged[-1].count * count, 0)
        else:
            merged.append(Axis(size, count, 0 if copied else a + 1))
    merged = merged or [Axis(1, 1, 0)]
    if rank and not merged[-1].taps:
        merged[-1] = Axis(merged[-1].size, merged[-1].count, COPIED)
    return [Axis(1, 1, 0)] * (rank - len(merged)) + merged


def taps_of(op: Resize) -> int:
    """Elements of x that an element of y reads along each axis, without antialiasing."""
    return {"nearest": 1, "linear": 2, "cubic": 4}[op.mode]


def offset_table(op: Resize, shape: Sequence[int], sizes: Sequence[int], counts: Sequence[int], rank: int = 0) -> Array:
    """`axes` of vision/resize.cl: a header of four numbers for each axis, then the entries of all taps.

    shape: of x. sizes, counts, rank: as for `merged_axes`.
    """
    axes = merged_axes(op, sizes, counts, rank)
    header: list[tuple[int, int, int, int]] = []
    offsets: list[Array] = []
    start = 4 * len(axes)
    for k, axis in enumerate(axes):
        stride = math.prod(a.size for a in axes[k + 1 :])
        if not axis.taps:
            header.append((axis.count, stride, 1, 0))
            continue
        taps = _taps(op, shape, axis)
        index = np.where(taps.inside[:, None], taps.index * stride, -1)
        header.append((axis.count, stride, index.shape[1], start))
        offsets.append(index.ravel().astype(np.int32))
        start += index.size
    return np.concatenate([np.array(header, np.int32).ravel(), *offsets])


def weight_table(op: Resize, shape: Sequence[int], sizes: Sequence[int], counts: Sequence[int], rank: int = 0) -> Array:
    """`weights` of vision/resize.cl, one for each entry of `offset_table`."""
    axes = merged_axes(op, sizes, counts, rank)
    weights = [_taps(op, shape, a).weight.ravel() for a in axes if a.taps]
    return np.concatenate([np.zeros(4 * len(axes), np.float32), *weights])


def _taps(op: Resize, shape: Sequence[int], axis: Axis) -> Taps:
    if axis.taps != COPIED:
        return axis_taps(op, axis.taps - 1, shape[axis.taps - 1])
    each = np.arange(axis.count, dtype=np.int32)[:, None]
    return Taps(each, np.ones(each.shape, np.float32), each[:, 0] >= 0)
