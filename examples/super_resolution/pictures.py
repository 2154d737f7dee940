"""The training pictures: public-domain and CC0 photographs from scikit-image's wheel, and drawn ones.

SOURCES.md names each photograph, its author and its licence. The demonstration picture (`astronaut`) is not among them.
"""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from skimage import data

PHOTOGRAPHS = ("chelsea", "coffee", "rocket", "hubble_deep_field", "camera", "brick", "grass", "gravel", "retina")
WORDS = "OpenCL buffer image kernel 0123456789 work-group Quartz opal, lattice; glyph & WAVE (edge) {field} 3.1415"


def photographs() -> list[Image.Image]:
    """Every photograph in RGB, and smaller copies of it: shrinking makes the finest detail sharper."""
    pictures = []
    for name in PHOTOGRAPHS:
        full = Image.fromarray(getattr(data, name)()).convert("RGB")
        for scale in (1.0, 0.75, 0.5, 0.35):
            size = even(full.width * scale), even(full.height * scale)
            if min(size) >= 128:
                pictures.append(full.resize(size, Image.Resampling.LANCZOS))
    return pictures


def even(length: float) -> int:
    """`length` rounded down to an even number of pixels, so that halving loses none."""
    return int(length) // 2 * 2


def drawings(rng: np.random.Generator, count: int, size: int = 256) -> list[Image.Image]:
    """`count` pictures of `size` pixels a side in turn of text, shapes, stripes and noise, drawn at 4x and shrunk."""
    makers = (text, shapes, stripes, noise)
    return [makers[i % len(makers)](rng, size * 4).resize((size, size), Image.Resampling.LANCZOS) for i in range(count)]


def colour(rng: np.random.Generator) -> tuple[int, int, int]:
    """A random RGB colour."""
    r, g, b = rng.integers(0, 256, 3).tolist()
    return r, g, b


def gradient(rng: np.random.Generator, size: int) -> Image.Image:
    """A smooth ramp between two colours in a random direction."""
    angle = rng.uniform(0, 2 * np.pi)
    ramp = np.linspace(0, 1, size)
    t = np.add.outer(np.sin(angle) * ramp, np.cos(angle) * ramp)
    t = (t - t.min()) / np.ptp(t)
    mixed = np.outer(1 - t, colour(rng)) + np.outer(t, colour(rng))
    return Image.fromarray(mixed.reshape(size, size, 3).astype(np.uint8))


def text(rng: np.random.Generator, size: int) -> Image.Image:
    """Lines of words in several sizes on a ramp."""
    picture = gradient(rng, size)
    draw = ImageDraw.Draw(picture)
    y = 0
    while y < size:
        height = int(rng.integers(32, 120))
        line = " ".join(rng.choice(WORDS.split(), 12))
        draw.text((int(rng.integers(-100, 20)), y), line, colour(rng), ImageFont.load_default(height))
        y += int(height * 1.2)
    return picture


def shapes(rng: np.random.Generator, size: int) -> Image.Image:
    """Overlapping ellipses, triangles, boxes and strokes on a ramp."""
    picture = gradient(rng, size)
    draw = ImageDraw.Draw(picture)
    for _ in range(60):
        corners = [tuple(p) for p in rng.integers(0, size, (3, 2)).tolist()]
        box = [tuple(p) for p in np.sort(rng.integers(0, size, (2, 2)), axis=0).tolist()]
        kind, width = rng.integers(0, 5), int(rng.integers(3, 28))
        if kind == 0:
            draw.ellipse(box, colour(rng), colour(rng), width)
        elif kind == 1:
            draw.polygon(corners, colour(rng))
        elif kind == 2:
            draw.rectangle(box, None, colour(rng), width)
        else:
            draw.line(corners, colour(rng), width)
    return picture


def stripes(rng: np.random.Generator, size: int) -> Image.Image:
    """Four fields of waves and bars with periods down to three final pixels."""
    half = size // 2
    rows, columns = np.mgrid[0:half, 0:half]
    picture = np.empty((size, size, 3))
    for top in (0, half):
        for left in (0, half):
            angle, period = rng.uniform(0, np.pi), rng.uniform(12, 80)
            wave = np.sin(2 * np.pi * (rows * np.sin(angle) + columns * np.cos(angle)) / period)
            t = (wave > 0).astype(float) if rng.random() < 0.5 else wave / 2 + 0.5
            field = np.outer(1 - t, colour(rng)) + np.outer(t, colour(rng))
            picture[top : top + half, left : left + half] = field.reshape(half, half, 3)
    return Image.fromarray(picture.astype(np.uint8))


def noise(rng: np.random.Generator, size: int) -> Image.Image:
    """Sum of smooth noises at several scales, as in clouds or stone."""
    total = np.zeros((size, size, 3))
    cells = 8
    while cells <= size // 4:
        grid = rng.integers(0, 256, (cells, cells, 3)).astype(np.uint8)
        layer = Image.fromarray(grid).resize((size, size), Image.Resampling.BICUBIC)
        total += (np.asarray(layer) - 127.5) * cells ** -rng.uniform(0.3, 0.8)
        cells *= 2
    return Image.fromarray(np.clip(total * 1.5 + 127.5, 0, 255).astype(np.uint8))
