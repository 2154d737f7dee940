"""Boxes of detectors in the layouts of their families, recognised by the outputs' shapes and values.

No name of a model or of an output is looked at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .grid_detections import binned_distances, corners_by_distance, steps_from_default_boxes
from .logits import sigmoid, softmax
from .results import Boxes

Array = np.ndarray[Any, Any]
Size = tuple[int, int]
"""Width and height of the input."""

THRESHOLD = 0.3
OVERLAP = 0.45
MOST = 100
_STRIDES = ((8, 16, 32), (8, 16, 32, 64), (16, 32), (4, 8, 16, 32))
_ANCHORS = (((8, 2), (16, 6)), ((16, 2), (32, 6)), ((4, 1),), ((8, 2), (16, 2), (32, 6)))
"""Grids of single-shot detectors with anchors of one size: stride, and anchors of a cell."""


def find_boxes(outputs: Sequence[Array], size: Size, threshold: float = THRESHOLD) -> Boxes | None:
    """Read outputs as a detector's, for an input of `size`. None if they are of no family known here.

    Boxes below `threshold` are dropped, and of boxes of a class that overlap by more than OVERLAP all but the best.
    """
    arrays = [np.asarray(a) for a in outputs if a.dtype.kind in "fiu"]
    families: Sequence[Callable[[list[Array], Size], Boxes | None]] = (
        _selected,
        _selected_rows,
        _per_stride,
        corners_by_distance,
        binned_distances,
        steps_from_default_boxes,
        _with_anchors,
        _boxes_and_scores,
        _one_array,
    )
    for family in families:
        found = family(arrays, size)
        if found is not None:
            return _kept(found, threshold)
    return None


def _kept(found: Boxes, threshold: float) -> Boxes:
    """Drop low scores and overlapping boxes; the best come first."""
    order = [int(i) for i in np.argsort(-found.scores, kind="stable") if found.scores[i] >= threshold][:2000]
    kept: list[int] = []
    for i in order:
        rivals = [k for k in kept if found.classes[k] == found.classes[i]]
        if len(kept) < MOST and all(overlap(found.boxes[i], found.boxes[k]) <= OVERLAP for k in rivals):
            kept.append(i)
    points = None if found.points is None else found.points[kept]
    return Boxes(found.reason, found.boxes[kept], found.scores[kept], found.classes[kept], points)


def overlap(a: Array, b: Array) -> float:
    """Intersection over union of two boxes of left, top, right, bottom."""
    w, h = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    both = max(0.0, float(w)) * max(0.0, float(h))
    union = float((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1])) - both
    return both / union if union > 0 else 0.0


def _selected(arrays: list[Array], size: Size) -> Boxes | None:
    """Boxes after suppression: [n, 4], with a class and a score for each, and perhaps a count."""
    flat = [a.reshape(a.shape[1:]) if a.ndim > 1 and a.shape[0] == 1 else a for a in arrays]
    boxes = [a for a in flat if a.ndim == 2 and a.shape[1] == 4 and a.dtype.kind == "f"]
    if len(boxes) != 1:
        return None
    n = len(boxes[0])
    rows = [a for a in flat if a.shape == (n,)]
    scores = [a for a in rows if a.dtype.kind == "f" and _within(a, 0, 1) and not _whole(a)]
    classes = [a for a in rows if all(a is not s for s in scores) and _whole(a)]
    if len(scores) != 1 or len(classes) > 1 or n == 0:
        return None
    counts = [a for a in arrays if a.size == 1 and n > 1]
    count = int(counts[0].reshape(-1)[0]) if counts else n
    corners = boxes[0][:count].astype(np.float64)
    ordered = "left, top, right, bottom in pixels"
    if corners.size and np.abs(corners).max() <= 2:
        corners = corners[:, [1, 0, 3, 2]] * np.array([*size, *size])
        ordered = "top, left, bottom, right of 0 to 1"
    number = classes[0][:count].astype(int) if classes else np.zeros(count, int)
    return Boxes(f"boxes, classes and scores of {n} finds: {ordered}", corners, scores[0][:count], number)


def _selected_rows(arrays: list[Array], size: Size) -> Boxes | None:
    """Rows of a box, a score and a class, after suppression: [1, n, 6], or [n, 7] with the picture's number first."""
    if len(arrays) != 1:
        return None
    rows = arrays[0].reshape(-1, arrays[0].shape[-1]) if arrays[0].ndim in (2, 3) else np.zeros((0, 0))
    if arrays[0].ndim == 2 and len(rows) == 1:
        return None  # as likely the scores of six or seven classes
    if rows.shape[1] not in (6, 7) or not 0 < len(rows) <= 1000 or rows.dtype.kind != "f":
        return None
    if rows.shape[1] == 7:
        score_first = _within(rows[:, 2], 0, 1) and _whole(rows[:, 1])  # picture, class, score, box
        columns = [3, 4, 5, 6, 2, 1] if score_first and not _whole(rows[:, 5]) else [1, 2, 3, 4, 6, 5]
        rows = rows[:, columns]
    elif _whole(rows[:, 0]) and _within(rows[:, 1], 0, 1) and not _whole(rows[:, 5]):
        rows = rows[:, [2, 3, 4, 5, 1, 0]]  # class, score, box
    boxes, scores, classes = rows[:, :4].astype(np.float64), rows[:, 4], rows[:, 5]
    if not (_within(scores, 0, 1) and _whole(classes) and _are_corners(boxes)):
        return None
    if np.abs(boxes).max() <= 2:
        boxes = boxes * np.array([*size, *size])
    return Boxes("rows of a box, a score and a class", boxes, scores, classes.astype(int))


def _per_stride(arrays: list[Array], size: Size) -> Boxes | None:
    """A box and scores of each cell in an array of its own for each stride; boxes relative to cells, log sizes."""
    for strides in _STRIDES:
        made = []
        for stride in strides:
            cells = math.ceil(size[0] / stride) * math.ceil(size[1] / stride)
            own = [a.reshape(cells, -1) for a in arrays if a.ndim == 3 and a.shape[1] == cells]
            boxes = [a for a in own if a.shape[1] == 4]
            scores = [a for a in own if a.shape[1] == 1]
            points = [a for a in own if a.shape[1] > 4 and a.shape[1] % 2 == 0]
            if len(boxes) != 1 or not scores or len(own) != 1 + len(scores) + len(points) or len(points) > 1:
                break
            at = _centres(size, stride, 1) * size / stride - 0.5
            centre, extent = (at + boxes[0][:, :2]) * stride, np.exp(boxes[0][:, 2:]) * stride
            sure = np.prod([np.clip(s[:, 0], 0, 1) for s in scores], 0) ** (1 / len(scores))
            marks = None
            if points:
                marks = (points[0].reshape(cells, -1, 2) + at[:, None]) * stride
            made.append((np.concatenate([centre - extent / 2, centre + extent / 2], 1), sure, marks))
        else:
            if len(arrays) == sum(len([a for a in arrays if a.ndim == 3 and a.shape[1] == len(m[1])]) for m in made):
                marks = None if any(m[2] is None for m in made) else np.concatenate([m[2] for m in made])
                sure = np.concatenate([m[1] for m in made])
                corners = np.concatenate([m[0] for m in made])
                listed = ", ".join(map(str, strides))
                reason = f"boxes and scores for each cell of grids of strides {listed}"
                return Boxes(reason, corners, sure, np.zeros(len(sure), int), marks)
    return None


def _with_anchors(arrays: list[Array], size: Size) -> Boxes | None:
    """A box with points, in pixels relative to an anchor's centre, and one score, for each anchor of known grids."""
    wide = [a.reshape(-1, a.shape[-1]) for a in arrays if a.ndim == 3 and a.shape[-1] > 4 and a.shape[-1] % 2 == 0]
    thin = [a.reshape(-1) for a in arrays if a.ndim == 3 and a.shape[-1] == 1]
    if not wide or len(wide) != len(thin) or len(wide) + len(thin) != len(arrays):
        return None
    if len({a.shape[1] for a in wide}) != 1:
        return None
    numbers, logits = (
        np.concatenate(sorted(wide, key=len, reverse=True)),
        np.concatenate(sorted(thin, key=len, reverse=True)),
    )
    for grids in _ANCHORS:
        centres = np.concatenate([_centres(size, stride, count) for stride, count in grids]) * size
        if len(centres) == len(numbers) == len(logits):
            middle, extent = numbers[:, :2] + centres, numbers[:, 2:4]
            points = numbers[:, 4:].reshape(len(numbers), -1, 2) + centres[:, None]
            boxes = np.concatenate([middle - extent / 2, middle + extent / 2], 1)
            reason = f"boxes with {points.shape[1]} points relative to {len(centres)} anchors"
            return Boxes(reason, boxes, sigmoid(logits), np.zeros(len(boxes), int), points)
    return None


def _boxes_and_scores(arrays: list[Array], size: Size) -> Boxes | None:
    """Boxes [1, n, 4] and scores of classes [1, n, k]."""
    pairs = [
        (b, s)
        for b in arrays
        for s in arrays
        if b is not s and b.ndim == s.ndim == 3 and b.shape[:2] == s.shape[:2] and b.shape[2] == 4 and b.shape[1] > 4
    ]
    if not pairs:
        return None
    boxes, scores = (a.reshape(-1, a.shape[-1]).astype(np.float64) for a in pairs[0])
    told = "boxes and scores of classes"
    if scores.shape[1] > 1 and np.allclose(scores.sum(1), 1, atol=1e-2) and scores.min() >= 0:
        scores, told = scores[:, 1:], told + ", of which the first is the background"
    elif not _within(scores, 0, 1):
        told += ", as logits"
        shares = softmax(scores)
        if scores.shape[1] > 1 and (shares.argmax(1) == scores.shape[1] - 1).mean() > 0.5:
            scores, told = shares[:, :-1], told + ", of which the last is 'nothing'"
        else:
            scores = sigmoid(scores)
    return _of_scores(boxes, scores, size, told)


def _one_array(arrays: list[Array], size: Size) -> Boxes | None:
    """One array of a box and scores for each cell: [1, n, 5 + k] (with a score for any object) or [1, 4 + k, n].

    Points of bodies, [x, y, visibility] of each, may follow the scores of columns. Weights of the masks that another
    output [1, m, h, w] holds are the last m numbers of a cell.
    """
    candidates = [a for a in arrays if a.ndim == 3 and a.shape[0] == 1 and a.dtype.kind == "f"]
    if len(candidates) != 1:
        return None
    a = candidates[0][0].astype(np.float64)
    weights = next((m.shape[1] for m in arrays if m.ndim == 4 and m.shape[0] == 1 and m.shape[1] > 1), 0)
    strides = next((s for s in _STRIDES for n in (1, 3) if _cells(size, s) * n in a.shape), None)
    if strides is None:
        return None
    if a.shape[1] in (_cells(size, strides), _cells(size, strides) * 3):
        if a.shape[0] < 5:
            return None
        told = "a box and scores of classes in each column"
        if (classes := _classes_before_points(a)) is not None:
            told += f", and {(len(a) - 4 - classes) // 3} points"
            points = a[4 + classes :].T.reshape(a.shape[1], -1, 3)[..., :2]
            return replace(_of_scores(a[:4].T, a[4 : 4 + classes].T, size, told, centred=True), points=points)
        if 0 < weights < len(a) - 4:
            a, told = a[:-weights], told + f", and weights of {weights} masks"
        return _of_scores(a[:4].T, _shares(a[4:].T), size, told, centred=True)
    if 0 < weights < a.shape[1] - 5:
        a = a[:, :-weights]
    if a.shape[1] < 6:
        return None
    boxes, scores = a[:, :4], _shares(a[:, 4:])
    scores = scores[:, 1:] * scores[:, :1]
    if (boxes[:, 2:] < 0).any() and len(a) == _cells(size, strides):
        parts = [(_centres(size, s, 1) * size / s - 0.5, s) for s in strides]
        cell = np.concatenate([at for at, _ in parts])
        stride = np.concatenate([np.full((len(at), 1), s) for at, s in parts])
        boxes = np.concatenate([(boxes[:, :2] + cell) * stride, np.exp(np.minimum(boxes[:, 2:], 20)) * stride], 1)
        return _of_scores(boxes, scores, size, "boxes relative to cells, with logarithms of sizes", centred=True)
    return _of_scores(boxes, scores, size, "a box, a score and scores of classes in each row", centred=True)


def _classes_before_points(a: Array) -> int | None:
    """The number of classes of columns [4 + k + 3 p, n] whose last 3 p rows are points; None without points."""
    shares = [_within(row, 0, 1) for row in a[4:]]
    classes = shares.index(False) if False in shares else 0
    rest = len(shares) - classes
    if not classes or rest % 3 or not all(shares[classes + 2 :: 3]) or any(shares[classes::3]):
        return None
    return classes


def _of_scores(boxes: Array, scores: Array, size: Size, told: str, centred: bool = False) -> Boxes:
    if centred or not _are_corners(boxes):
        told += "; boxes by centre and size"
        boxes = np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], 1)
    if np.median(np.abs(boxes)) <= 1.5:
        boxes, told = boxes * np.array([*size, *size]), told + ", of 0 to 1"
    classes = scores.argmax(1)
    return Boxes(told, boxes, scores.max(1), classes)


def _centres(size: Size, stride: int, count: int) -> Array:
    """Centres of a grid's cells [cells * count, 2] as parts of the input, row by row."""
    columns, rows = (math.ceil(s / stride) for s in size)
    x, y = (np.arange(columns) + 0.5) * stride / size[0], (np.arange(rows) + 0.5) * stride / size[1]
    return np.stack(np.meshgrid(x, y), -1).reshape(-1, 2).repeat(count, 0)


def _cells(size: Size, strides: Sequence[int]) -> int:
    return sum(math.ceil(size[0] / s) * math.ceil(size[1] / s) for s in strides)


def _are_corners(boxes: Array) -> bool:
    return len(boxes) > 0 and float(np.mean((boxes[:, 2] >= boxes[:, 0]) & (boxes[:, 3] >= boxes[:, 1]))) > 0.99


def _within(a: Array, low: float, high: float) -> bool:
    return a.size > 0 and float(a.min()) >= low - 1e-3 and float(a.max()) <= high + 1e-3


def _whole(a: Array) -> bool:
    return bool(np.all(a == np.rint(a)))


def _shares(a: Array) -> Array:
    return a if _within(a, 0, 1) else sigmoid(a)
