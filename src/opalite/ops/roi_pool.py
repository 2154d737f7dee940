"""RoiPool: the maximum of each bin of regions of images, in whole pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..ir.tensor_type import TensorType
from .operator import Array, Cost, Op, Types, make_type, moved_bytes, need, register_op, tensor

TYPICAL_PIXELS = 16  # pixels of a bin, for cost estimates


@register_op
@dataclass(frozen=True, slots=True)
class RoiPool(Op):
    """y[r, c, i, j]: the maximum over bin (i, j) of region r in channel c of its image; 0 in an empty bin.

    Inputs x[N,C,H,W], regions[R,5] of floats, each (image, clamped to x's, left, top, right, bottom), ends included; y
    is [R,C,rows,columns]. Attributes: rows, columns; scale: of the corners, which are then rounded, ties away from 0.
    Bins overlap if they do not divide the region. Corners beyond a million pixels are clamped.
    """

    rows: int
    columns: int
    scale: float

    arity = 2
    float32_inputs = (1,)

    def check_shape(self, ins: Types) -> None:
        x, regions = tensor(ins, 0, "x"), tensor(ins, 1, "regions")
        need(x.rank == 4 and all(x.shape), f"x must be [N,C,H,W] and not empty, got {x}")
        need(regions.dtype.is_float, f"regions must hold floats, got {regions}")
        need(regions.rank == 2 and regions.shape[1] == 5, f"regions must be [R,5], got {regions}")
        need(self.rows > 0 and self.columns > 0, f"rows and columns must be positive, got {self.rows}, {self.columns}")

    def infer_shape(self, ins: Types) -> list[TensorType]:
        x, regions = tensor(ins, 0, "x"), tensor(ins, 1, "regions")
        return [make_type(x.dtype, (regions.shape[0], x.shape[1], self.rows, self.columns))]

    def reference(self, arrays: Sequence[Array | None]) -> list[Array]:
        x, regions = arrays
        assert x is not None
        assert regions is not None
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

    def cost(self, ins: Types, outs: Sequence[TensorType]) -> Cost:
        return Cost(1.0 * TYPICAL_PIXELS * outs[0].count, moved_bytes(ins, outs))


FARTHEST = 1 << 20


def _rounded(position: float) -> int:
    near = min(max(position, -FARTHEST), FARTHEST)
    return int(math.copysign(math.floor(abs(near) + 0.5), near))


def _bins(first: int, last: int, count: int, size: int) -> list[slice]:
    """The part of an axis of `size` that each of `count` bins from `first` to `last` covers."""
    extent = np.float32(max(last - first + 1, 1)) / np.float32(count)
    ends = [(first + math.floor(i * extent), first + math.ceil((i + 1) * extent)) for i in range(count)]
    return [slice(min(max(a, 0), size), min(max(b, 0), size)) for a, b in ends]
