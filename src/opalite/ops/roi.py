"""RoiAlign and RoiPool: bins of regions of images, from interpolated samples or whole pixels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..ir.dtype import DType
from ..ir.tensor_type import TensorType
from .conv import compute_dtype
from .operator import Array, Arrays, Cost, Op, Outs, Types, frozen_op, make_type, moved_bytes, need, present, tensor

TYPICAL_SAMPLES = 4
"""Samples of a bin for cost estimates, if the number depends on the region."""

LOWEST = -3e38
"""Below every region's extent; some drivers omit infinity."""
MOST = 1 << 24  # samples along an axis of a bin, so that float32 counts them


@dataclass(frozen=True, slots=True)
class _Regions(Op):
    """Base class of operators with `rows` and `columns` of bins in each region."""

    rows: int
    columns: int

    float32_inputs = (1,)

    def check_regions(self, ins: Types, numbers: int) -> TensorType:
        """The type of the regions. ShapeError unless x, the regions, of so many numbers each, and the bins fit."""
        x, regions = tensor(ins, 0, "x"), tensor(ins, 1, "regions")
        need(x.rank == 4 and all(x.shape), f"x must be [N,C,H,W] and not empty, got {x}")
        need(regions.dtype.is_float, f"regions must hold floats, got {regions}")
        need(regions.rank == 2 and regions.shape[1] == numbers, f"regions must be [R,{numbers}], got {regions}")
        need(self.rows > 0 and self.columns > 0, f"rows and columns must be positive, got {self.rows}, {self.columns}")
        return regions

    def infer_shape(self, ins: Types) -> list[TensorType]:
        x, regions = tensor(ins, 0, "x"), tensor(ins, 1, "regions")
        return [make_type(x.dtype, (regions.shape[0], x.shape[1], self.rows, self.columns))]


@frozen_op
class RoiAlign(_Regions):
    """y[r, c, i, j]: mean or maximum over samples in bin (i, j) of region r, in channel c of image images[r].

    Inputs x[N,C,H,W], regions[R,4] (left, top, right, bottom) of any float type, images[R] (i32 or i64, clamped to
    x's); y is [R,C,rows,columns]. Attributes: rows, columns; ratio: samples along each axis of a bin, or 0 for one for
    each started pixel of a bin; scale: of the regions; half_pixel: whether pixel centres are at halves, else at
    integers, and regions are at least 1 wide and high; maximum: the largest of the samples' weighted neighbours,
    instead of the mean. A sample more than a pixel outside x, or at NaN, is 0.
    """

    ratio: int
    scale: float
    half_pixel: bool
    maximum: bool

    arity = 3

    @property
    def offset(self) -> float:
        """Coordinate of the first pixel's centre."""
        return 0.5 if self.half_pixel else 0.0

    @property
    def least(self) -> float:
        """Least width and height of a region."""
        return LOWEST if self.half_pixel else 1.0

    def check_shape(self, ins: Types) -> None:
        regions, images = self.check_regions(ins, 4), tensor(ins, 2, "images")
        need(images.dtype in (DType.INT32, DType.INT64), f"images must be i32 or i64, got {images}")
        fits = images.shape == regions.shape[:1]
        need(fits, f"images must hold a number for each of regions {regions}, got {images}")
        need(self.ratio >= 0, f"ratio must not be negative, got {self.ratio}")

    def reference(self, arrays: Arrays) -> list[Array]:
        x, regions, images = present(arrays, 3)
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

    def cost(self, ins: Types, outs: Outs) -> Cost:
        samples = self.ratio**2 if self.ratio else TYPICAL_SAMPLES
        return Cost(8.0 * samples * outs[0].count, moved_bytes(ins, outs))


FARTHEST = 1 << 20  # pixels
TYPICAL_PIXELS = 16  # pixels of a bin, for cost estimates


@frozen_op
class RoiPool(_Regions):
    """y[r, c, i, j]: the maximum over bin (i, j) of region r in channel c of its image; 0 in an empty bin.

    Inputs x[N,C,H,W], regions[R,5] of floats, each (image, clamped to x's, left, top, right, bottom), ends included; y
    is [R,C,rows,columns]. Attributes: rows, columns; scale: of the corners, which are then rounded, ties away from 0.
    Bins overlap if they do not divide the region. Corners beyond a million pixels are clamped.
    """

    scale: float

    arity = 2

    def check_shape(self, ins: Types) -> None:
        self.check_regions(ins, 5)

    def reference(self, arrays: Arrays) -> list[Array]:
        x, regions = present(arrays, 2)
        y = np.zeros((len(regions), x.shape[1], self.rows, self.columns), x.dtype)
        corners = np.nan_to_num(regions[:, 1:].astype(np.float32) * np.float32(self.scale))
        for found, number, region in zip(y, np.nan_to_num(regions[:, 0]).tolist(), corners.tolist(), strict=True):
            left, top, right, bottom = map(_rounded, region)
            image = x[min(max(int(number), 0), len(x) - 1)]
            down = _bins(top, bottom, self.rows, image.shape[1])
            along = _bins(left, right, self.columns, image.shape[2])
            for i, j in np.ndindex(self.rows, self.columns):
                covered = image[:, down[i], along[j]]
                if covered.size:
                    found[:, i, j] = covered.max((1, 2))
        return [y]

    def cost(self, ins: Types, outs: Outs) -> Cost:
        return Cost(1.0 * TYPICAL_PIXELS * outs[0].count, moved_bytes(ins, outs))


def _rounded(position: float) -> int:
    near = min(max(position, -FARTHEST), FARTHEST)
    return int(math.copysign(math.floor(abs(near) + 0.5), near))


def _bins(first: int, last: int, count: int, size: int) -> list[slice]:
    """The part of an axis of `size` that each of `count` bins from `first` to `last` covers."""
    extent = np.float32(max(last - first + 1, 1)) / np.float32(count)
    ends = [(first + math.floor(i * extent), first + math.ceil((i + 1) * extent)) for i in range(count)]
    return [slice(min(max(a, 0), size), min(max(b, 0), size)) for a, b in ends]
