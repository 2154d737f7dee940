"""RoiAlign: bins of regions of images, each from interpolated samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..ir.dtype import DType
from ..ir.tensor_type import TensorType
from .conv import compute_dtype
from .operator import Array, Cost, Op, Types, make_type, moved_bytes, need, register_op, tensor

TYPICAL_SAMPLES = 4
"""Samples of a bin for cost estimates, if the number depends on the region."""

LOWEST = -3e38  # below every extent of a region; drivers may leave out infinity
"""Below every region's extent; some drivers omit infinity."""
MOST = 1 << 24  # samples along an axis of a bin, so that float32 counts them


@register_op
@dataclass(frozen=True, slots=True)
class RoiAlign(Op):
    """y[r, c, i, j]: mean or maximum over samples in bin (i, j) of region r, in channel c of image images[r].

    Inputs x[N,C,H,W], regions[R,4] (left, top, right, bottom) of any float type, images[R] (i32 or i64, clamped to
    x's); y is [R,C,rows,columns]. Attributes: rows, columns; ratio: samples along each axis of a bin, or 0 for one for
    each started pixel of a bin; scale: of the regions; half_pixel: whether pixel centres are at halves, else at
    integers, and regions are at least 1 wide and high; maximum: the largest of the samples' weighted neighbours,
    instead of the mean. A sample more than a pixel outside x, or at NaN, is 0.
    """

    rows: int
    columns: int
    ratio: int
    scale: float
    half_pixel: bool
    maximum: bool

    arity = 3
    float32_inputs = (1,)

    @property
    def offset(self) -> float:
        """Coordinate of the first pixel's centre."""
        return 0.5 if self.half_pixel else 0.0

    @property
    def least(self) -> float:
        """Least width and height of a region."""
        return LOWEST if self.half_pixel else 1.0

    def check_shape(self, ins: Types) -> None:
        x, regions, images = tensor(ins, 0, "x"), tensor(ins, 1, "regions"), tensor(ins, 2, "images")
        need(x.rank == 4 and all(x.shape), f"x must be [N,C,H,W] and not empty, got {x}")
        need(regions.dtype.is_float, f"regions must hold floats, got {regions}")
        need(regions.rank == 2 and regions.shape[1] == 4, f"regions must be [R,4], got {regions}")
        need(images.dtype in (DType.INT32, DType.INT64), f"images must be i32 or i64, got {images}")
        need(
            images.shape == regions.shape[:1], f"images must hold a number for each of regions {regions}, got {images}"
        )
        need(self.rows > 0 and self.columns > 0, f"rows and columns must be positive, got {self.rows}, {self.columns}")
        need(self.ratio >= 0, f"ratio must not be negative, got {self.ratio}")

    def infer_shape(self, ins: Types) -> list[TensorType]:
        x, regions = tensor(ins, 0, "x"), tensor(ins, 1, "regions")
        return [make_type(x.dtype, (regions.shape[0], x.shape[1], self.rows, self.columns))]

    def reference(self, arrays: Sequence[Array | None]) -> list[Array]:
        x, regions, images = arrays
        assert x is not None
        assert regions is not None
        assert images is not None
        acc = compute_dtype(x.dtype)
        kind = compute_dtype(regions.dtype).type
        y = np.zeros((len(regions), x.shape[1], self.rows, self.columns), acc)
        corners = regions.astype(kind) * kind(self.scale) - kind(self.offset)
        for found, (left, top, right, bottom), n in zip(y, corners, images, strict=True):
            image = x[min(max(int(n), 0), len(x) - 1)].astype(acc)
            down = self._samples(top, bottom, self.rows, image.shape[1])
            along = self._samples(left, right, self.columns, image.shape[2])
            for i, j in np.ndindex(self.rows, self.columns):
                found[:, i, j] = self._pool(image, *down[i], *along[j])
        return [y.astype(x.dtype)]

    def _samples(self, low: Any, high: Any, bins: int, size: int) -> list[tuple[Array, Array, int]]:
        """For each bin along one axis: pixels [2, n], weights [2, n] and the number of all samples.

        Samples more than a pixel outside x are omitted from the n.
        """
        kind = type(low)
        extent = max(high - low, kind(self.least))
        width = extent / kind(bins)
        if not np.isfinite(width):
            return [(np.zeros((2, 0), np.int64), np.zeros((2, 0), kind), self.ratio)] * bins
        number = self.ratio or min(max(0, math.ceil(width)), MOST)
        found = []
        for k in range(bins):
            step = width / kind(number) if number else kind(0)
            near = (np.array([-2, size + 1]) - float(low + k * width)) / float(step) if step > 0 else (0.0, number)
            numbers = np.arange(max(0, math.floor(near[0])), min(number, math.ceil(near[1]) + 1))
            at = low + kind(k) * width + (numbers.astype(kind) + kind(0.5)) * step
            at = np.maximum(at[(at >= -1) & (at <= size)], 0).astype(kind)
            first = np.minimum(at.astype(np.int64), size - 1)
            share = np.where(first < size - 1, at - first, 0).astype(kind)
            found.append((np.stack([first, np.minimum(first + 1, size - 1)]), np.stack([1 - share, share]), number))
        return found

    def _pool(
        self, image: Array, rows: Array, down: Array, rows_count: int, columns: Array, along: Array, columns_count: int
    ) -> Array:
        """One bin of image[C,H,W]: [C]."""
        samples = rows_count * columns_count
        seen = rows.shape[1] * columns.shape[1]
        if not seen:
            return np.zeros(len(image), image.dtype)
        pixels = image[:, rows.reshape(-1)][:, :, columns.reshape(-1)]
        weighted = pixels * (down.reshape(-1, 1) * along.reshape(1, -1)).astype(image.dtype)
        if self.maximum:
            largest: Array = weighted.max((1, 2))
            return np.maximum(largest, 0) if seen < samples else largest
        mean: Array = weighted.sum((1, 2)) / samples
        return mean

    def cost(self, ins: Types, outs: Sequence[TensorType]) -> Cost:
        samples = self.ratio**2 if self.ratio else TYPICAL_SAMPLES
        return Cost(8.0 * samples * outs[0].count, moved_bytes(ins, outs))
