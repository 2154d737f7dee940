"""Resize along one axis: input positions and weights of each output position.

Coordinates are computed in float32, operation by operation as in onnxruntime's CPU provider, so that ties of nearest
neighbours agree. Reference and kernels share these numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..ir.symbols import is_symbolic_float
from .operator import Array

if TYPE_CHECKING:
    from .resize import Resize

COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)
MODES = ("nearest", "linear", "cubic")
NEAREST_MODES = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
NEAREST_UNSPECIFIED = "untold"
"""Nearest mode of opsets without the attribute: up along axes that shrink, else down, as in onnxruntime."""

_F = np.float32
_HALF = _F(0.5)
_TIE = _F(1e-6)  # positions this close to the middle of two elements count as ties


@dataclass(frozen=True)
class Taps:
    """y[o] = sum over t of weight[o, t] * x[index[o, t]], or the extrapolation value where not inside[o]."""

    index: Array  # int32[out, taps], all within the input
    weight: Array  # float32[out, taps]
    inside: Array  # bool[out]


def is_untouched(op: Resize, axis: int) -> bool:
    """Whether the axis is copied unchanged: scale 1, and no crop."""
    scale = op.scales[axis]
    return bool((scale.float32() if is_symbolic_float(scale) else _F(scale)) == 1) and op.crop(axis) == (0, 1)


def axis_taps(op: Resize, axis: int, size: int) -> Taps:
    """The taps along `axis`, which has `size` elements in the input."""
    count = op.sizes[axis]
    at = _coordinates(op, axis, size, count)
    inside = np.ones(count, bool)
    if op.coordinate == "tf_crop_and_resize":
        inside = (at >= 0) & (at <= _F(size - 1))
    if op.mode == "nearest":
        mode = op.nearest_mode
        if mode == NEAREST_UNSPECIFIED:
            mode = "ceil" if op.scales[axis] < 1 else "floor"
        index = np.clip(_nearest(at, mode), 0, size - 1)[:, None]
        weight = np.ones((count, 1), _F)
    elif op.antialias:
        index, weight = _antialias(op, at, _F(op.scales[axis]), size)
    elif op.mode == "linear":
        index, weight = _linear(at, size)
    else:
        index, weight = _cubic(at, size, _F(op.cubic_a), op.exclude_outside)
    return Taps(index.astype(np.int32), weight.astype(_F), inside)


def _coordinates(op: Resize, axis: int, size: int, count: int) -> Array:
    """Position in the input, float32[count], of each output position."""
    kind, scale = op.coordinate, _F(op.scales[axis])
    at = np.arange(count, dtype=_F)
    n, m = _F(size), _F(count)
    if kind == "asymmetric":
        return at / scale
    if kind == "tf_half_pixel_for_nn":
        return (at + _HALF) / scale
    if kind == "align_corners":
        return at * (n - 1) / (m - 1) if count > 1 else np.zeros(count, _F)
    if kind == "pytorch_half_pixel" and count <= 1:
        return np.zeros(count, _F)
    if kind == "tf_crop_and_resize":
        start, end = map(_F, op.crop(axis))
        if count <= 1:
            return np.full(count, 0.5 * float(start + end) * float(n - 1), _F)
        return start * (n - 1) + (at * (end - start) * (n - 1)) / (m - 1)
    if kind == "half_pixel_symmetric":
        offset = n / 2 * (1 - m / (scale * n))
        return (float(offset) + (at.astype(np.float64) + 0.5) / float(scale) - 0.5).astype(_F)
    return (at + _HALF) / scale - _HALF


def _nearest(at: Array, mode: str) -> Array:
    if mode == "floor":
        return np.floor(at)
    if mode == "ceil":
        return np.ceil(at)
    low = np.floor(at)
    beyond = at - low - _HALF
    up = np.where(np.abs(beyond) <= _TIE, mode == "round_prefer_ceil", beyond > 0)
    return low + up


def _linear(at: Array, size: int) -> tuple[Array, Array]:
    at = np.clip(at, _F(0), _F(size - 1))
    low = np.minimum(at.astype(np.int64), size - 1)
    high = np.minimum(low + 1, size - 1)
    after, before = np.abs(at - low.astype(_F)), np.abs(at - high.astype(_F))
    weight = np.stack([before, after], 1)
    weight[low == high] = 0.5
    return np.stack([low, high], 1), weight


def _cubic(at: Array, size: int, a: np.float32, exclude_outside: bool) -> tuple[Array, Array]:
    first = np.floor(at)
    s = at - first
    index = first[:, None].astype(np.int64) + np.arange(-1, 3)
    weight: Array = np.stack(
        [
            ((a * (s + 1) - 5 * a) * (s + 1) + 8 * a) * (s + 1) - 4 * a,
            ((a + 2) * s - (a + 3)) * s * s + 1,
            ((a + 2) * (1 - s) - (a + 3)) * (1 - s) * (1 - s) + 1,
            ((a * (2 - s) - 5 * a) * (2 - s) + 8 * a) * (2 - s) - 4 * a,
        ],
        1,
    ).astype(_F)
    if exclude_outside:
        weight[(index < 0) | (index >= size)] = 0
        weight = _normalized(weight)
    return np.clip(index, 0, size - 1), weight


def _normalized(weight: Array) -> Array:
    """Weights divided by their sum at each output position."""
    total = weight.sum(1, keepdims=True)
    scaled: Array = weight / np.where(total == 0, _F(1), total)
    return scaled


def _antialias(op: Resize, at: Array, scale: np.float32, size: int) -> tuple[Array, Array]:
    """A filter that widens by 1/scale when shrinking (Pillow's); weights beyond the ends go to the end elements."""
    step = np.maximum(1 / scale, _F(1))
    support = _F(1 if op.mode == "linear" else 2) * step
    centre = _HALF + at
    first = np.floor(centre - support + _HALF).astype(np.int64)
    last = np.floor(centre + support + _HALF).astype(np.int64)
    offset = np.arange(max(int((last - first).max(initial=0)), 1))
    index = first[:, None] + offset
    distance = ((index.astype(_F) - centre[:, None] + _HALF) * (1 / step)).astype(_F)
    weight = _filter(np.abs(distance), op.mode, _F(op.cubic_a))
    weight[index >= last[:, None]] = 0
    if op.exclude_outside:
        weight[(index < 0) | (index >= size)] = 0
    return _fold_ends(index, _normalized(weight), size)


def _filter(x: Array, mode: str, a: np.float32) -> Array:
    tent: Array = np.maximum(1 - x, _F(0))
    if mode == "linear":
        return tent
    near: Array = ((a + 2) * x - (a + 3)) * x * x + 1
    far: Array = (((x - 5) * x + 8) * x - 4) * a
    hat: Array = np.where(x < 1, near, np.where(x < 2, far, _F(0)))
    return hat


def _fold_ends(index: Array, weight: Array, size: int) -> tuple[Array, Array]:
    """Windows moved inside [0, size), with unchanged sums: weights of outer positions are added to the end elements."""
    width = min(index.shape[1], size)
    first = np.clip(index[:, :1], 0, size - width)
    folded = np.zeros((len(index), width), _F)
    rows = np.broadcast_to(np.arange(len(index))[:, None], index.shape)
    place = np.clip(index, 0, size - 1) - first
    keep = weight != 0
    np.add.at(folded, (rows[keep], place[keep]), weight[keep])
    return first + np.arange(width), folded
