"""Results: what a model's outputs mean to people: classes, boxes, points, masks, pictures, maps, text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_LISTED = 4  # rows and columns of the smallest array that is a map


@dataclass(frozen=True)
class Result:
    """A meaning of outputs. reason: the signs by which it was recognised, for people."""

    reason: str

    def lines(self) -> list[str]:
        """Say the result in lines of text."""
        return []

    def to_raw(self) -> dict[str, Any]:
        """The result as plain data; of maps and pictures only the size."""
        found: dict[str, Any] = {"kind": type(self).__name__}
        for key, value in vars(self).items():
            if isinstance(value, np.ndarray):
                found[key] = list(value.shape) if value.ndim > 1 and min(value.shape[:2]) > _LISTED else value.tolist()
            elif key != "labels" or len(value):
                found[key] = value
        return found


@dataclass(frozen=True)
class Classes(Result):
    """Classes and their scores, the highest first. labels: names by class; [] if none are known."""

    best: Sequence[tuple[int, float]]
    labels: Sequence[str] = ()

    def lines(self) -> list[str]:
        return [f"  {score:8.4f}  {i:5d}  {name_of(i, self.labels)}".rstrip() for i, score in self.best]


@dataclass(frozen=True)
class Boxes(Result):
    """Boxes [n, 4] of left, top, right, bottom in pixels of the input, the highest score first.

    points: [n, p, 2] of x and y in pixels of the input, such as eyes and mouth; None if there are none.
    """

    boxes: Array
    scores: Array
    classes: Array
    points: Array | None = None
    labels: Sequence[str] = ()

    def lines(self) -> list[str]:
        found = []
        for box, score, c in zip(self.boxes, self.scores, self.classes, strict=True):
            name = name_of(int(c), self.labels) or f"class {int(c)}"
            left, top, right, bottom = (round(float(v)) for v in box)
            found.append(f"  {score:8.4f}  {name}: {left},{top} to {right},{bottom}")
        return found or ["  nothing found"]


@dataclass(frozen=True)
class Points(Result):
    """Points [n, 2] of x and y in pixels of the input."""

    points: Array

    def lines(self) -> list[str]:
        return [f"  {len(self.points)} points"]


@dataclass(frozen=True)
class Embedding(Result):
    """Numbers [n] that describe a picture: those of like pictures are near each other. It has no look."""

    numbers: Array

    def lines(self) -> list[str]:
        shown = ", ".join(f"{v:.4g}" for v in self.numbers[:4])
        return [f"  {shown} ... of length {float(np.linalg.norm(self.numbers)):.4g}; -o FILE.npy writes them"]


@dataclass(frozen=True)
class ClassMap(Result):
    """The class of each pixel, [height, width]."""

    classes: Array
    labels: Sequence[str] = ()

    def lines(self) -> list[str]:
        numbers, counts = np.unique(self.classes, return_counts=True)
        order = np.argsort(-counts, kind="stable")[:8]
        shares = [(int(numbers[i]), counts[i] / self.classes.size) for i in order]
        return [f"  {share:6.1%}  {i:5d}  {name_of(i, self.labels)}".rstrip() for i, share in shares]


@dataclass(frozen=True)
class Mask(Result):
    """Share of each pixel that belongs to what was looked for: [height, width] of 0 to 1."""

    share: Array

    def lines(self) -> list[str]:
        return [f"  {float((self.share > 0.5).mean()):.1%} of the picture"]


@dataclass(frozen=True)
class Drawing(Result):
    """A picture: [height, width, 3] of bytes in RGB, or [height, width] of brightness."""

    pixels: Array

    def lines(self) -> list[str]:
        return [f"  {self.pixels.shape[1]}x{self.pixels.shape[0]} pixels"]


@dataclass(frozen=True)
class HeatMap(Result):
    """A number for each pixel, such as depth: [height, width] of any range."""

    numbers: Array

    def lines(self) -> list[str]:
        return [f"  {float(self.numbers.min()):.6g} to {float(self.numbers.max()):.6g}"]


@dataclass(frozen=True)
class Text(Result):
    """Text that was read. texts: a string and its mean probability for each row of the batch."""

    texts: Sequence[tuple[str, float]] = field(default_factory=tuple)

    def lines(self) -> list[str]:
        return [f"  {share:8.4f}  {text}" for text, share in self.texts]


def name_of(number: int, labels: Sequence[str]) -> str:
    """Return the name of a class, '' if it has none."""
    return labels[number] if 0 <= number < len(labels) else ""
