"""Resize: interpolation along any axes, with all of ONNX's modes and coordinate transformations."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from ..ir.types import TensorType
from .base import Array, Attrs, Cost, Op, Types, make_type, moved_bytes, need, register_op, tensor
from .conv import compute_dtype
from .resize_taps import COORDINATES, MODES, NEAREST_MODES, NEAREST_UNTOLD, Taps, axis_taps, is_untouched


@register_op
class Resize(Op):
    """y[o0, o1, ..] = sum over taps of the product of their weights along each axis times x at their positions.

    attrs: sizes (y's shape); scales (a float for each axis: y's size / x's, or what the model says); mode ("nearest",
    "linear", "cubic"); coordinate (one of COORDINATES); nearest_mode (one of NEAREST_MODES, or NEAREST_UNTOLD);
    cubic_a; exclude_outside (cubic and antialias: positions outside x count nothing); antialias (linear and cubic: a
    wider filter when shrinking); roi (starts, then ends, in fractions of x) and extrapolation (the value outside x),
    both for tf_crop_and_resize.
    Interpolated types are floats; nearest takes every type.
    """

    name = "Resize"

    def check_shape(self, attrs: Attrs, ins: Types) -> None:
        x = tensor(ins, 0, "x")
        nearest_modes = (*NEAREST_MODES, NEAREST_UNTOLD)
        for key, known in (("mode", MODES), ("coordinate", COORDINATES), ("nearest_mode", nearest_modes)):
            need(attrs[key] in known, f"{key} must be one of {', '.join(known)}, got '{attrs[key]}'")
        for key in ("sizes", "scales"):
            need(len(attrs[key]) == x.rank, f"{key} must hold {x.rank} numbers for x {x}, got {tuple(attrs[key])}")
        need(all(s > 0 for s in attrs["scales"]), f"scales must be positive, got {tuple(attrs['scales'])}")
        need(
            attrs["mode"] == "nearest" or x.dtype.is_float,
            f"mode '{attrs['mode']}' interpolates floats; cast x {x} first",
        )
        need(not attrs["antialias"] or attrs["mode"] != "nearest", "antialias needs mode linear or cubic, got nearest")
        if attrs["coordinate"] == "tf_crop_and_resize":
            roi = attrs["roi"]
            need(
                roi is not None and len(roi) == 2 * x.rank,
                f"tf_crop_and_resize needs {2 * x.rank} numbers in roi for x {x}, got {roi}",
            )
        for axis, (d, o) in enumerate(zip(x.shape, attrs["sizes"], strict=True)):
            need(d > 0 or o == 0, f"axis {axis} of x {x} is empty and cannot be resized to {o}")
            need(
                o == d or not is_untouched(attrs, axis),
                f"axis {axis} of x {x} has scale 1 but size {o} in the output",
            )

    def infer_shape(self, attrs: Attrs, ins: Types) -> list[TensorType]:
        return [make_type(tensor(ins, 0, "x").dtype, attrs["sizes"])]

    def reference(self, attrs: Attrs, arrays: Sequence[Array | None]) -> list[Array]:
        x = arrays[0]
        assert x is not None
        taps = resized_axes(attrs, x.shape)
        if not taps:
            return [x.copy()]
        outside = _outside(taps, attrs["sizes"])
        if attrs["mode"] == "nearest":
            y = x
            for axis, t in taps.items():
                y = np.take(y, t.index[:, 0], axis)
        else:
            y = _weighted(x.astype(compute_dtype(x.dtype)), taps, attrs["sizes"]).astype(x.dtype)
        return [np.where(outside, np.asarray(attrs["extrapolation"]).astype(x.dtype), y)]

    def cost(self, attrs: Attrs, ins: Types, outs: Sequence[TensorType]) -> Cost:
        x = tensor(ins, 0, "x")
        width = {"nearest": 1, "linear": 2, "cubic": 4}[attrs["mode"]]
        each = []
        for axis in range(x.rank):
            if not is_untouched(attrs, axis):
                stretch = max(1.0, 1 / attrs["scales"][axis]) if attrs["antialias"] else 1.0
                each.append(width * stretch)
        return Cost(2.0 * outs[0].count * math.prod(each), moved_bytes(ins, outs))


def resized_axes(attrs: Attrs, shape: Sequence[int]) -> dict[int, Taps]:
    """Taps of every axis of x (of `shape`) that is not copied one to one."""
    return {axis: axis_taps(attrs, axis, d) for axis, d in enumerate(shape) if not is_untouched(attrs, axis)}


def _outside(taps: dict[int, Taps], sizes: Sequence[int]) -> Array:
    """Where the output takes the extrapolation value: bool of a shape that broadcasts to `sizes`."""
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
