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
from .results import Classes, ClassMap, Drawing, HeatMap, Mask, Points, Result, Text

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
    first = arrays[0]
    return (
        _classes(first, labels, top)
        or _text(first, labels)
        or _image(first, size, preprocess, labels, channels, arrays)
        or _points(first, size)
    )


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
    shares = probabilities(row) if a.dtype.kind == "f" else np.asarray(row, np.float64)
    shift = len(row) - len(labels) if given else 0  # a first class 'background' that the names leave out
    order = np.argsort(-shares, kind="stable")[:top]
    names = ("background",) * shift + tuple(labels) if shift == 1 else tuple(labels)
    best = [(int(i), float(shares[i])) for i in order]
    how = "" if np.allclose(shares, row, atol=1e-6) else ", whose softmax is shown"
    return Classes(f"scores of {len(row)} classes{how}", best, names)


def _text(a: Array, labels: Sequence[str]) -> Result | None:
    """Characters by position [batch, positions, characters], of which one means 'none' (CTC)."""
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
    for width in (3, 2):
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


def _within_share(a: Array) -> bool:
    return bool(a.min() >= -1e-3 and a.max() <= 1 + 1e-3)
