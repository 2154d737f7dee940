"""MaxRoiPool on the host: the largest element of each bin of each region, whose extents depend on the regions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import ShapeError
from ..proto.decode import Array
from .native import HostNode, Step, host_op


@host_op("MaxRoiPool")
def max_roi_pool(node: HostNode) -> Step:
    """y[R,C,rows,columns] of x[N,C,H,W] and regions[R,5], each (image, left, top, right, bottom), ends included.

    Corners are multiplied by `spatial_scale` and rounded, halves away from 0. Bins overlap where they do not divide
    the region; one that lies outside the image is 0.
    """
    rows, columns = (int(n) for n in node.attrs["pooled_shape"])
    scale = np.float32(node.attrs.get("spatial_scale", 1.0))

    def run(inputs: Sequence[Any]) -> list[Any]:
        x, regions = inputs
        if x.ndim != 4 or regions.ndim != 2 or regions.shape[1] != 5:
            raise ShapeError(f"MaxRoiPool takes x[N,C,H,W] and regions[R,5], got shapes {x.shape} and {regions.shape}")
        y = np.zeros((len(regions), x.shape[1], rows, columns), x.dtype)
        for found, (image, left, top, right, bottom) in zip(y, regions.astype(np.float32).tolist(), strict=True):
            if not 0 <= image < len(x):
                raise ShapeError(f"MaxRoiPool has a region of image {image:g}, but x has {len(x)} images")
            down = _bins(_rounded(top * scale), _rounded(bottom * scale), rows, x.shape[2])
            along = _bins(_rounded(left * scale), _rounded(right * scale), columns, x.shape[3])
            _pool(x[int(image)], down, along, found)
        return [y]

    return run


def _rounded(position: float) -> int:
    return int(math.copysign(math.floor(abs(position) + 0.5), position))


def _bins(first: int, last: int, count: int, size: int) -> list[slice]:
    """What of an axis of `size` each of `count` bins from `first` to `last` covers."""
    extent = np.float32(max(last - first + 1, 1)) / np.float32(count)
    ends = [(first + math.floor(i * extent), first + math.ceil((i + 1) * extent)) for i in range(count)]
    return [slice(min(max(a, 0), size), min(max(b, 0), size)) for a, b in ends]


def _pool(image: Array, down: Sequence[slice], along: Sequence[slice], found: Array) -> None:
    for i, rows in enumerate(down):
        for j, columns in enumerate(along):
            covered = image[:, rows, columns]
            if covered.size:
                found[:, i, j] = covered.max((1, 2))
