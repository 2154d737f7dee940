"""Placement: where the pixels of a picture lie in a model's input, and the picture fitted so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

Array = np.ndarray[Any, Any]
GREY = (114, 114, 114)
"""Colour of letterbox bars."""


@dataclass(frozen=True)
class Placement:
    """x of the input = x of the picture * scale_x + left, and y likewise.

    picture, size: (width, height) of the picture and of the input, in pixels. fit: how the one became the other; '' for
    a picture that went in as it is.
    """

    picture: tuple[int, int]
    size: tuple[int, int]
    scale_x: float = 1.0
    scale_y: float = 1.0
    left: float = 0.0
    top: float = 0.0
    fit: str = ""

    def to_picture(self, points: Array) -> Array:
        """Convert points [..., 2] (x, y) of the input to the picture's pixels."""
        shift, scale = np.array((self.left, self.top)), np.array((self.scale_x, self.scale_y))
        return np.asarray((np.asarray(points, np.float64) - shift) / scale)

    def box_in_input(self, size: tuple[int, int]) -> tuple[float, float, float, float]:
        """Left, top, right and bottom of the picture in a map of the input that is `size` (width, height) large."""
        kx, ky = size[0] / self.size[0], size[1] / self.size[1]
        w, h = self.picture
        return (
            self.left * kx,
            self.top * ky,
            (self.left + w * self.scale_x) * kx,
            (self.top + h * self.scale_y) * ky,
        )

    def map_to_picture(self, layer: Image.Image, resample: Image.Resampling) -> Image.Image:
        """Return a map over the input as a picture of the original's size; bars are cut off, cut parts are black."""
        box = self.box_in_input(layer.size)
        return layer.transform(
            self.picture,
            Image.Transform.EXTENT,
            box,
            Image.Resampling.NEAREST if resample is Image.Resampling.NEAREST else Image.Resampling.BILINEAR,
        )

    def describe(self) -> str:
        """Say what was done, in words."""
        sizes = [f"{w}x{h}" for w, h in (self.picture, self.size)]
        if sizes[0] == sizes[1]:
            return f"{sizes[0]}, as it is"
        words = {"stretch": "stretched", "crop": "cropped", "letterbox": "with grey bars"}
        return f"{sizes[0]} to {sizes[1]}, {words.get(self.fit, 'resized')}"


def fit_picture(
    picture: Image.Image, size: tuple[int, int], fit: str, share: float = 1.0
) -> tuple[Image.Image, Placement]:
    """Give a picture another size (width, height) by `fit`: 'stretch', 'crop' or 'letterbox'."""
    (w, h), (wide, high) = picture.size, size
    if (w, h) == size and not (fit == "crop" and share < 1):
        return picture, Placement(size, size)
    if fit == "stretch":
        made = picture.resize(size, Image.Resampling.BILINEAR, reducing_gap=None)
        return made, Placement((w, h), size, wide / w, high / h, fit=fit)
    if fit == "crop":
        scale = max(wide / w, high / h) / share
        left, top = (wide - w * scale) / 2, (high - h * scale) / 2
        box = (-left / scale, -top / scale, (wide - left) / scale, (high - top) / scale)
        made = picture.resize(size, Image.Resampling.BILINEAR, box)
        return made, Placement((w, h), size, scale, scale, left, top, fit)
    scale = min(wide / w, high / h)
    inner = max(1, round(w * scale)), max(1, round(h * scale))
    left, top = (wide - inner[0]) // 2, (high - inner[1]) // 2
    made = Image.new(picture.mode, size, GREY if picture.mode == "RGB" else GREY[0])
    made.paste(picture.resize(inner, Image.Resampling.BILINEAR), (left, top))
    return made, Placement((w, h), size, inner[0] / w, inner[1] / h, left, top, fit)
