"""Results drawn on the picture that they are about."""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from .placement import Placement
from .results import Boxes, Classes, ClassMap, Drawing, HeatMap, Mask, Points, Result, Text, name_of

Array = np.ndarray[Any, Any]
_SHADE = 0.5  # share of a colour laid over the picture

_RAMP = np.array([(13, 8, 60), (75, 30, 120), (160, 50, 110), (225, 95, 70), (250, 165, 50), (250, 240, 150)])
"""Colours of the smallest to the largest number of a map, brighter step by step."""


def draw(result: Result, picture: Image.Image, placement: Placement) -> Image.Image:
    """Return the result as a picture: drawn on `picture`, or the picture that the model made."""
    if isinstance(result, Boxes):
        return _boxes(result, picture, placement)
    if isinstance(result, Points):
        shown = picture.copy()
        _dots(ImageDraw.Draw(shown), placement.to_picture(result.points), _unit(picture), (90, 220, 120))
        return shown
    if isinstance(result, ClassMap):
        return _class_map(result, picture, placement)
    if isinstance(result, Mask):
        return _mask(result, picture, placement)
    if isinstance(result, HeatMap):
        return color_map(result.numbers)
    if isinstance(result, Drawing):
        return _drawing(result, picture, placement)
    lines = []
    if isinstance(result, Classes):
        lines = [f"{share:.1%} {name_of(i, result.labels) or f'class {i}'}" for i, share in result.best]
    elif isinstance(result, Text):
        lines = [text for text, _ in result.texts]
    return _captioned(picture, lines)


def color_map(numbers: Array) -> Image.Image:
    """Draw numbers [height, width] in colours from the smallest, dark, to the largest, bright."""
    low, high = float(numbers.min()), float(numbers.max())
    at = (numbers - low) / (high - low or 1) * (len(_RAMP) - 1)
    lower = np.clip(at.astype(int), 0, len(_RAMP) - 2)
    part = (at - lower)[..., None]
    return Image.fromarray(np.rint(_RAMP[lower] * (1 - part) + _RAMP[lower + 1] * part).astype(np.uint8))


def color_of(number: int) -> tuple[int, int, int]:
    """Return the colour of a class; neighbours differ."""
    hue = (number * 0.381966 + 0.1) % 1
    wheel = [abs((hue + shift) % 1 * 6 - 3) - 1 for shift in (0.0, 2 / 3, 1 / 3)]
    r, g, b = (round(80 + 175 * min(1.0, max(0.0, v))) for v in wheel)
    return r, g, b


def _unit(picture: Image.Image) -> int:
    """Return the width of a line that is visible in a picture of this size."""
    return max(1, round(max(picture.size) / 250))


def _boxes(result: Boxes, picture: Image.Image, placement: Placement) -> Image.Image:
    shown = picture.copy()
    pen, unit = ImageDraw.Draw(shown), _unit(picture)
    font = ImageFont.load_default(max(12, 6 * unit))
    corners = placement.to_picture(result.boxes.reshape(-1, 2, 2)).reshape(-1, 4)
    for i in reversed(range(len(corners))):
        number = int(result.classes[i])
        color = color_of(number)
        left, top, right, bottom = (float(v) for v in corners[i])
        if right < left or bottom < top:
            continue
        pen.rectangle((left, top, right, bottom), outline=color, width=unit)
        caption = f"{name_of(number, result.labels)} {result.scores[i]:.2f}".strip()
        at = (
            (max(0.0, left), max(0.0, top - font.size - unit))
            if isinstance(font, ImageFont.FreeTypeFont)
            else (left, top)
        )
        pen.rectangle(pen.textbbox(at, caption, font), fill=color)
        pen.text(at, caption, "black", font)
        if result.points is not None:
            _dots(pen, placement.to_picture(result.points[i]), unit + 1, color)
    return shown


def _dots(pen: ImageDraw.ImageDraw, points: Array, radius: int, color: tuple[int, int, int]) -> None:
    for x, y in points:
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=color)


def _class_map(result: ClassMap, picture: Image.Image, placement: Placement) -> Image.Image:
    numbers, at = np.unique(result.classes, return_inverse=True)
    colors = np.array([(0, 0, 0) if n == 0 else color_of(int(n)) for n in numbers], np.uint8)
    layer = Image.fromarray(colors[at.reshape(result.classes.shape)])
    over = Image.fromarray(np.where(result.classes == 0, 0, round(255 * _SHADE)).astype(np.uint8))
    return _over(picture, placement, layer, over, Image.Resampling.NEAREST)


def _mask(result: Mask, picture: Image.Image, placement: Placement) -> Image.Image:
    layer = Image.new("RGB", result.share.shape[::-1], color_of(1))
    over = Image.fromarray(np.rint(result.share * 255 * _SHADE).astype(np.uint8))
    return _over(picture, placement, layer, over, Image.Resampling.BILINEAR)


def _over(
    picture: Image.Image, placement: Placement, layer: Image.Image, share: Image.Image, resample: Image.Resampling
) -> Image.Image:
    return Image.composite(
        placement.map_to_picture(layer, resample), picture, placement.map_to_picture(share, resample)
    )


def _drawing(result: Drawing, picture: Image.Image, placement: Placement) -> Image.Image:
    """Return the model's picture without bars; one of brightness alone gets the colours of the original."""
    made = Image.fromarray(np.ascontiguousarray(result.pixels))
    left, top, right, bottom = (round(v) for v in placement.box_in_input(made.size))
    kept = max(0, left), max(0, top), min(made.width, right), min(made.height, bottom)
    if made.mode == "L":
        held = picture.resize(
            (round(placement.picture[0] * placement.scale_x * made.width / placement.size[0]), bottom - top),
            Image.Resampling.BICUBIC,
        ).crop((kept[0] - left, kept[1] - top, kept[2] - left, kept[3] - top))
        _, blue, red = held.convert("YCbCr").split()
        return Image.merge("YCbCr", (made.crop(kept), blue, red)).convert("RGB")
    return made.crop(kept)


def _captioned(picture: Image.Image, lines: list[str]) -> Image.Image:
    shown = picture.copy()
    pen, size = ImageDraw.Draw(shown), max(12, min(picture.size) // 18)
    font = ImageFont.load_default(size)
    for i, line in enumerate(lines):
        at = (size // 3, size // 3 + i * (size + 4))
        box = pen.textbbox(at, line, font)
        pen.rectangle((box[0] - 3, box[1] - 2, box[2] + 3, box[3] + 2), fill="black")
        pen.text(at, line, "white", font)
    return shown
