"""Meanings of a model's outputs for a picture, recognised by their shapes and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from PIL import Image

from .answer_check import probabilities
from .detections import THRESHOLD, Size, find_boxes
from .preprocess import Preprocess
from .results import Classes, ClassMap, Drawing, Embedding, HeatMap, Mask, Points, Result, Text

Array = np.ndarray[Any, Any]
MOST_CLASSES = 100_000
_LEAST_SIDE = 8  # of a map
_LARGEST_STRIDE = 8  # of a map of classes; coarser maps are features


def recognize(
    outputs: Mapping[str, Any],
    size: Size,
    preprocess: Preprocess,
    labels: Sequence[str] = (),
    channels: int | None = 3,
    threshold: float = THRESHOLD,
    top: int = 5,
) -> Result | None:
    """Find what outputs for one picture mean. None if no known meaning fits.

    size: width and height of the input, in pixels. channels: of the input. threshold: least score of a box. top:
    number of classes to give.
    """
    arrays = [a for a in outputs.values() if isinstance(a, np.ndarray) and a.size and a.dtype.kind in "fiu"]
    if not arrays:
        return None
    boxes = find_boxes(arrays, size, threshold)
    if boxes is not None:
        return replace(boxes, labels=tuple(labels))
    if (joints := _joints_by_axis(arrays, size)) is not None:
        return joints
    guess: Result | None = None
    for a in arrays:
        found = (
            _classes(a, labels, top)
            or _text(a, labels)
            or _image(a, size, preprocess, labels, channels, arrays)
            or _points(a, size)
        )
        if found is not None and _is_sure(found, a):
            return found
        guess = guess or found
    return guess


def _is_sure(found: Result, a: Array) -> bool:
    """Whether an output's own numbers say what it is. Any numbers may be scores without a scale, or an embedding."""
    if isinstance(found, Embedding):
        return False
    axis = 1 if a.ndim == 4 and a.shape[1] > 1 else -1
    rough = isinstance(found, ClassMap) and a.dtype.kind == "f"
    if isinstance(found, Classes) and not (found.labels and len(found.labels) == a.size):
        return bool(a.dtype.kind == "f" and a.min() >= 0 and abs(float(a.sum()) - 1) < 1e-2)
    return not rough or bool(np.allclose(a.sum(axis), 1, atol=1e-2))


def _classes(a: Array, labels: Sequence[str], top: int) -> Result | None:
    if a.ndim == 0 or (a.ndim > 1 and a.shape[0] != 1):
        return None
    row = a.reshape(-1)
    vector = a.ndim <= 2 or all(d == 1 for d in a.shape[2:]) or all(d == 1 for d in a.shape[1:-1])
    if not vector or not 2 <= len(row) <= MOST_CLASSES or (a.dtype.kind != "f" and len(row) > 10_000):
        return None
    given = [n for n in (len(labels), len(labels) + 1) if n == len(row)]
    if _looks_like_points(row) and not given:
        return None
    if not given and a.dtype.kind == "f" and _looks_like_embedding(row):
        return Embedding(f"{len(row)} numbers that describe the picture, to be compared with another's", row)
    shares = probabilities(row) if a.dtype.kind == "f" else np.asarray(row, np.float64)
    how = "" if np.allclose(shares, row, atol=1e-6) else ", whose softmax is shown"
    return best_classes(shares, labels, top, how)


def best_classes(scores: Array, labels: Sequence[str], top: int, how: str = "") -> Classes:
    """Return the `top` highest of a vector of scores, as they are. how: what was done to them, in words.

    Names that are one fewer than the scores leave out a first class, the background.
    """
    names = ("background", *labels) if labels and len(scores) == len(labels) + 1 else tuple(labels)
    order = np.argsort(-scores, kind="stable")[:top]
    return Classes(f"scores of {len(scores)} classes{how}", [(int(i), float(scores[i])) for i in order], names)


def _looks_like_embedding(row: Array) -> bool:
    """Whether numbers are of length 1, or as many as embeddings have, and no shares."""
    if row.min() >= 0 and abs(float(row.sum()) - 1) < 1e-2:
        return False
    is_unit = len(row) >= 32 and abs(float(np.linalg.norm(row)) - 1) < 1e-3
    return is_unit or (len(row) >= 64 and len(row) & (len(row) - 1) == 0)


def _text(a: Array, labels: Sequence[str]) -> Result | None:
    """Characters by position [batch, positions, characters], of which one means 'none' (CTC)."""
    if a.ndim == 3 and a.shape[1] == 1 and a.shape[0] > 1:
        a = a.transpose(1, 0, 2)  # positions before the batch
    if a.ndim != 3 or a.dtype.kind != "f" or a.shape[2] < 11 or not labels or a.shape[1] < 2:
        return None
    extra = a.shape[2] - len(labels)
    if extra not in (0, 1, 2):
        return None
    shares = np.apply_along_axis(probabilities, 2, a) if a.min() < 0 or a.max() > 1 + 1e-3 else a
    best = shares.argmax(2)
    blank = 0 if extra == 0 or np.mean(best == 0) >= np.mean(best == a.shape[2] - 1) else a.shape[2] - 1
    characters = [*([""] if blank == 0 and extra else []), *labels, " "]
    texts = []
    for row, share in zip(best, shares.max(2), strict=True):
        kept = [i for i, c in enumerate(row) if c != blank and (i == 0 or row[i - 1] != c)]
        string = "".join(characters[row[i]] if row[i] < len(characters) else "" for i in kept)
        texts.append((string, float(share[kept].mean()) if kept else 0.0))
    return Text(f"characters at {a.shape[1]} positions, {'the first' if not blank else 'the last'} means none", texts)


def _image(
    a: Array, size: Size, p: Preprocess, labels: Sequence[str], channels: int | None, outputs: Sequence[Array]
) -> Result | None:
    planes = _planes(a, size)
    if planes is None:
        return None
    count, (height, width) = len(planes), planes.shape[1:]
    shaped = f"{count} x {height}x{width}" if count > 1 else f"{height}x{width}"
    integral = a.dtype.kind in "iu" and a.dtype != np.uint8
    sums_to_one = count > 1 and planes.min() >= -1e-3 and np.allclose(planes.sum(0), 1, atol=1e-2)
    if count == 3 and not sums_to_one:
        pixels = to_bytes(planes.transpose(1, 2, 0), p)
        return Drawing(f"three planes of {height}x{width}", pixels[..., ::-1] if p.colors == "bgr" else pixels)
    if count == 1:
        plane = planes[0]
        if integral:
            return ClassMap(f"a whole number for each of {shaped} pixels", plane.astype(int), tuple(labels))
        if channels == 1 and width >= size[0] and width % size[0] == 0:
            return Drawing(f"one plane of {shaped} for a picture of one channel", to_bytes(plane, p))
        if _within_share(plane):
            return Mask(f"one number of 0 to 1 for each of {shaped} pixels", np.clip(plane, 0, 1))
        return HeatMap(f"one number for each of {shaped} pixels", plane.astype(np.float64))
    if sums_to_one and count == 2:
        return Mask(f"two shares for each of {height}x{width} pixels, of which the second is shown", planes[1])
    if (peaks := _peaks(planes, size)) is not None:
        return peaks
    others = [planes_of.shape[1:] for o in outputs if (planes_of := _planes(o, size)) is not None]
    if count <= 1000 and width * _LARGEST_STRIDE >= size[0] and set(others) == {(height, width)}:
        told = f"scores of {count} classes for each of {height}x{width} pixels"
        return ClassMap(told, planes.argmax(0), tuple(labels))
    return None


def _planes(a: Array, size: Size) -> Array | None:
    """Return an output as planes [c, h, w] if its sides are the input's, a multiple or a part of them."""
    while a.ndim > 3 and a.shape[0] == 1:
        a = a[0]
    if a.ndim not in (2, 3):
        return None
    options = [a[None]] if a.ndim == 2 else [a, a.transpose(2, 0, 1)]
    for planes in options:
        height, width = planes.shape[1:]
        if min(height, width) >= _LEAST_SIDE and abs(width / size[0] * size[1] / height - 1) < 0.1:
            return np.asarray(planes)
    return None


def to_bytes(a: Array, p: Preprocess) -> Array:
    """Pixels of 0 to 255 from a model's numbers: of 0 to 1, of 0 to 255, or by the input's own conversion."""
    if a.dtype == np.uint8:
        return a
    low, high = float(a.min()), float(a.max())
    pixels = a.astype(np.float64)
    if p.scale != 1 and p.mean != (0.0,) and low < -0.05 and max(-low, high) < 4:
        pixels = (pixels * np.asarray(p.std) + np.asarray(p.mean)) / p.scale
    elif low >= -0.5 and high <= 1.5:
        pixels = pixels * 255
    return np.asarray(np.clip(np.rint(pixels), 0, 255), np.uint8)


def picture_of(a: Array, p: Preprocess) -> Image.Image | None:
    """Return an array [1, c, h, w], [c, h, w], [h, w, c] or [h, w] (c is 1, 3 or 4) as a picture; None for others.

    Floats of 0 to 1 are brightness.
    """
    while a.ndim > 3 and a.shape[0] == 1:
        a = a[0]
    if a.ndim == 3 and a.shape[0] in (1, 3, 4):
        a = a.transpose(1, 2, 0)
    if a.ndim == 3 and a.shape[2] == 1:
        a = a[..., 0]
    if a.ndim not in (2, 3) or min(a.shape[:2]) < 4 or (a.ndim == 3 and a.shape[2] not in (3, 4)):
        return None
    return Image.fromarray(np.ascontiguousarray(to_bytes(a, p)))


def _looks_like_points(row: Array) -> bool:
    """Whether the numbers look like coordinates: many of them large, few negative."""
    return len(row) >= 8 and float(np.median(row)) > 4 and float(np.mean(row < -1)) < 0.4


def _points(a: Array, size: Size) -> Result | None:
    """Points of x, y (and depth) in the input's pixels."""
    row = a.reshape(-1).astype(np.float64)
    if a.ndim == 4 and a.shape[:2] == (1, 1) and a.shape[3] == 3 and a.shape[2] > 3 and _within_share(a):
        found = a[0, 0].astype(np.float64)  # TensorFlow's order
        return Points(
            f"{len(found)} points of y, x and a score, in parts of the sides", found[:, 1::-1] * np.array(size)
        )
    for width in (3, 2, 5, 4):
        if len(row) % width or not 4 <= len(row) // width <= 2000:
            continue
        points = row.reshape(-1, width)[:, :2]
        side = np.array(size)
        for unit, told in ((1.0, "pixels"), (side, "parts of the sides")):
            inside = np.mean(((points * unit) > -0.1 * side) & ((points * unit) < 1.1 * side))
            spread = (points * unit).std(0)
            if inside > 0.98 and (spread > 0.02 * side).all():
                return Points(f"{len(points)} points of {width} numbers, in {told}", points * unit)
    return None


def _peaks(planes: Array, size: Size) -> Points | None:
    """Points at the peaks of planes that are nearly 0 elsewhere, such as one plane for each joint of a body."""
    count, (height, width) = len(planes), planes.shape[1:]
    tops = planes.reshape(count, -1).max(1)
    if count < 4 or tops.min() <= 0 or planes.min() < -0.3 * tops.max():
        return None
    if float((planes > 0.5 * tops[:, None, None]).mean()) > 0.03:
        return None
    at = planes.reshape(count, -1).argmax(1)
    points = (np.stack([at % width, at // width], 1) + 0.5) * np.array([size[0] / width, size[1] / height])
    return Points(f"{count} points at the peaks of {count} planes of {height}x{width}", points)


def _joints_by_axis(arrays: Sequence[Array], size: Size) -> Points | None:
    """Points of which one output has scores of each x, [1, p, k w], and another of each y, [1, p, k h] (SimCC)."""
    if len(arrays) != 2 or any(a.ndim != 3 or a.shape[0] != 1 for a in arrays):
        return None
    x, y = (a[0] for a in arrays)
    parts = [x.shape[1] / size[0], y.shape[1] / size[1]]
    if len(x) != len(y) or len(x) < 4 or parts[0] != parts[1] or parts[0] not in (1, 2, 3, 4):
        return None
    points = np.stack([x.argmax(1), y.argmax(1)], 1) / parts[0]
    return Points(f"scores of each x and each y for {len(x)} points", points)


def _within_share(a: Array) -> bool:
    return bool(a.min() >= -1e-3 and a.max() <= 1 + 1e-3)
