"""Boxes of detectors that answer for each cell of grids: by distances, their bins, or steps from default boxes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .logits import sigmoid, softmax
from .results import Boxes

Array = np.ndarray[Any, Any]
Size = tuple[int, int]

_STRIDES = ((8, 16, 32, 64, 128), (8, 16, 32, 64), (8, 16, 32))
_BINS = 8  # of each side's distance, in units of a cell
_DEFAULT_SIDES = {8: (16, 32), 16: (64, 128), 32: (256, 512)}
_STEP_SHARES = (0.1, 0.2)  # of a default box: a step of its centre, and of the logarithm of its size


def corners_by_distance(outputs: Sequence[Array], size: Size) -> Boxes | None:
    """Scores [n, 1], distances [n, 4] to a box's sides in cells and perhaps points [n, 2 p], of each stride (SCRFD).

    Two boxes begin at the upper left corner of each cell.
    """
    rows = [a.reshape(-1, a.shape[-1]) for a in outputs if a.ndim in (2, 3) and a.shape[-1] > 0]
    if len(rows) != len(outputs):
        return None
    for strides in _STRIDES:
        grids = [(stride, cell_corners(size, stride).repeat(2, 0)) for stride in strides]
        own = [[a for a in rows if len(a) == len(at)] for _, at in grids]
        widths = [sorted(a.shape[1] for a in group) for group in own]
        if sum(map(len, own)) != len(rows) or any(w != widths[0] for w in widths) or widths[0][:2] != [1, 4]:
            continue
        if len(widths[0]) > 3 or (len(widths[0]) == 3 and widths[0][2] % 2):
            continue
        boxes, scores, points = [], [], []
        for (stride, at), group in zip(grids, own, strict=True):
            score, distance, *others = sorted(group, key=lambda a: a.shape[1])
            scores.append(score[:, 0])
            boxes.append(_around(at, distance * stride))
            points += [at[:, None] + a.reshape(len(at), -1, 2) * stride for a in others]
        sure = np.concatenate(scores)
        if sure.min() < 0 or sure.max() > 1:
            sure = sigmoid(sure)
        told = f"scores and distances to sides for two boxes of each cell of strides {', '.join(map(str, strides))}"
        marks = np.concatenate(points) if points else None
        return Boxes(told, np.concatenate(boxes), sure, np.zeros(len(sure), int), marks)
    return None


def binned_distances(outputs: Sequence[Array], size: Size) -> Boxes | None:
    """Scores of classes and bins of the distances to a box's sides, for each cell (PicoDet, NanoDet).

    [1, n, k] and [1, n, 32] of each stride, or [1, n, k + 32] of all.
    """
    arrays = [a[0] for a in outputs if a.ndim == 3 and a.shape[0] == 1]
    bins = 4 * _BINS
    if len(arrays) != len(outputs):
        return None
    for strides in _STRIDES:
        grids = [(stride, cell_corners(size, stride) + stride / 2) for stride in strides]
        if len(arrays) == 1 and len(arrays[0]) == sum(len(at) for _, at in grids) and arrays[0].shape[1] > bins:
            scores, sides = arrays[0][:, :-bins], arrays[0][:, -bins:]
        else:
            own = [[a for a in arrays if len(a) == len(at)] for _, at in grids]
            if any(len(group) != 2 or group[0].shape[1] == group[1].shape[1] for group in own):
                continue
            sides_of = [next((a for a in group if a.shape[1] == bins), None) for group in own]
            if len(arrays) != 2 * len(grids) or any(s is None for s in sides_of):
                continue
            sides = np.concatenate([s for s in sides_of if s is not None])
            scores = np.concatenate([a for group in own for a in group if a.shape[1] != bins])
        if not scores.size or scores.min() < 0 or scores.max() > 1 or (sides.min() >= 0 and sides.max() <= 1):
            continue
        distance = softmax(sides.reshape(-1, 4, _BINS)) @ np.arange(_BINS)
        stride_of = np.concatenate([np.full((len(at), 1), stride) for stride, at in grids])
        boxes = _around(np.concatenate([at for _, at in grids]), distance * stride_of)
        told = f"scores of {scores.shape[1]} classes and bins of distances for each cell of strides " + ", ".join(
            map(str, strides)
        )
        return Boxes(told, boxes, scores.max(1), scores.argmax(1))
    return None


def steps_from_default_boxes(outputs: Sequence[Array], size: Size) -> Boxes | None:
    """Steps [1, n, 4] from default boxes, two shares [1, n, 2], and points [1, n, 10] (RetinaFace)."""
    by_width = {a.shape[-1]: a.reshape(-1, a.shape[-1]).astype(np.float64) for a in outputs if a.ndim == 3}
    if len(outputs) != 3 or sorted(by_width) != [2, 4, 10]:
        return None
    boxes = np.concatenate(
        [
            np.concatenate(
                [np.repeat(cell_corners(size, stride) + stride / 2, len(sides), 0), _both(sides, size, stride)], 1
            )
            for stride, sides in _DEFAULT_SIDES.items()
        ]
    )
    if any(len(a) != len(boxes) for a in by_width.values()):
        return None
    centre, side = boxes[:, :2], boxes[:, 2:]
    move, grow = _STEP_SHARES
    middle = centre + by_width[4][:, :2] * move * side
    extent = side * np.exp(np.clip(by_width[4][:, 2:] * grow, -20, 20))
    points = centre[:, None] + by_width[10].reshape(len(boxes), -1, 2) * move * side[:, None]
    shares = by_width[2] if np.allclose(by_width[2].sum(1), 1, atol=1e-2) else softmax(by_width[2])
    corners = np.concatenate([middle - extent / 2, middle + extent / 2], 1)
    told = f"steps from {len(boxes)} default boxes, with points and two shares"
    return Boxes(told, corners, shares[:, 1], np.zeros(len(boxes), int), points)


def cell_corners(size: Size, stride: int) -> Array:
    """Upper left corners [cells, 2] of a grid's cells in pixels, row by row."""
    x, y = (np.arange(math.ceil(s / stride)) * stride for s in size)
    return np.stack(np.meshgrid(x, y), -1).reshape(-1, 2).astype(np.float64)


def _around(at: Array, distance: Array) -> Array:
    """Boxes from a point and the distances to left, top, right and bottom."""
    return np.concatenate([at - distance[:, :2], at + distance[:, 2:]], 1)


def _both(sides: tuple[int, ...], size: Size, stride: int) -> Array:
    """Width and height of the square default boxes of each cell."""
    cells = len(cell_corners(size, stride))
    return np.tile(np.repeat(np.array(sides, np.float64)[:, None], 2, 1), (cells, 1))
