"""Pictures as arrays, and how far two of them differ."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Pixels = NDArray[np.uint8]


def to_input(picture: Image.Image) -> NDArray[np.float32]:
    """RGB picture as the network's input: [1,3,H,W], 0..1."""
    return np.ascontiguousarray(np.asarray(picture.convert("RGB"), np.float32).transpose(2, 0, 1)[None] / 255)


def to_picture(output: NDArray[np.float32]) -> Image.Image:
    """The network's output [1,3,H,W] in 0..1 as a picture."""
    return Image.fromarray(np.rint(output[0].transpose(1, 2, 0) * 255).astype(np.uint8))


def luma(pixels: Pixels) -> NDArray[np.float64]:
    """ITU-R BT.601 luma in 0..255."""
    return np.asarray(pixels, np.float64) @ [0.299, 0.587, 0.114]


def psnr(a: Image.Image, b: Image.Image) -> tuple[float, float]:
    """Peak signal-to-noise ratio in dB over all pixels of two RGB pictures: (of luma, of RGB)."""
    pa, pb = np.asarray(a.convert("RGB")), np.asarray(b.convert("RGB"))
    errors = luma(pa) - luma(pb), pa.astype(np.float64) - pb
    y, rgb = (float(10 * np.log10(255**2 / np.mean(e**2))) for e in errors)
    return y, rgb
