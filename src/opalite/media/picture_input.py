"""Pictures as arrays of a model's input."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from ..errors import InputError
from .input_spec import InputSpec
from .placement import Placement, fit_picture
from .preprocess import Preprocess

Array = np.ndarray[Any, Any]
PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")


@dataclass(frozen=True)
class PictureInput:
    """An input's array made from a picture in RGB, and how the one became the other.

    channels: of the input. note: parts of the file that were left out, in words.
    """

    name: str
    array: Array
    picture: Image.Image
    placement: Placement
    preprocess: Preprocess
    channels: int
    note: str = ""

    def lines(self) -> list[str]:
        """Say in a line what was done with the picture, and warn of guesses."""
        p = self.preprocess
        reason = f" ({p.reason})" if p.reason else ""
        note = f" ({self.note})" if self.note else ""
        lines = [f"picture  {self.placement.describe()}{note}; {p.describe()}{reason}"]
        if p.guessed:
            lines.append("         guessed: if results look wrong, give --preprocess, --mean, --std or --colors")
        return lines


@dataclass(frozen=True)
class PictureShape:
    """Sizes of an input that takes pictures; None for open ones. layout: NCHW, NHWC, CHW, HWC or HW."""

    layout: str
    batch: int | None
    channels: int | None
    height: int | None
    width: int | None


def is_picture(path: Path) -> bool:
    """Whether a file begins as a picture does, whatever its name."""
    try:
        with Image.open(path):
            return True
    except Exception:  # readers of other kinds of files raise whatever they like
        return False


def open_picture(path: Path) -> tuple[Image.Image, str]:
    """Read a picture in RGB, turned as its camera says, and say what was left out. InputError if it is no picture.

    Transparent parts become white, as most programs show them; of several frames the first is taken.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on many pixels, and on damaged parts that may be left out
            with Image.open(path) as opened:
                frames = getattr(opened, "n_frames", 1)
                picture, note = flat_picture(ImageOps.exif_transpose(opened))
    except UnidentifiedImageError as e:
        raise InputError(f"{path} could not be read as a picture: it is of no kind that Pillow knows") from e
    except Image.DecompressionBombError as e:
        most = 2 * (Image.MAX_IMAGE_PIXELS or 0)
        raise InputError(f"{path} has more than {most:,} pixels, the most that are read; make it smaller") from e
    except (OSError, ValueError, SyntaxError) as e:
        raise InputError(f"{path} could not be read as a picture: {e or type(e).__name__}") from e
    return picture, "; ".join([*([f"the first of {frames} frames"] if frames > 1 else []), *([note] if note else [])])


def flat_picture(picture: Image.Image) -> tuple[Image.Image, str]:
    """Convert to RGB of 8 bits, and say what became of transparent parts.

    Numbers of 16 bits, and floats of 0 to 1, keep their brightness.
    """
    if picture.mode == "F" or picture.mode.startswith("I"):
        numbers = np.nan_to_num(np.asarray(picture, np.float64))
        largest = float(numbers.max()) if numbers.size else 0.0
        scale = 1 / 257 if picture.mode.startswith("I;16") or largest > 255 else 255.0 if largest <= 1 else 1.0
        picture = Image.fromarray(np.clip(numbers * scale + 0.5, 0, 255).astype(np.uint8))
    if not picture.has_transparency_data:
        return picture.convert("RGB"), ""
    layers = picture.convert("RGBA")
    if np.asarray(layers)[..., 3].min() == 255:
        return layers.convert("RGB"), ""
    return Image.alpha_composite(Image.new("RGBA", layers.size, "white"), layers).convert("RGB"), (
        "transparent parts are white"
    )


def picture_shape(name: str, shape: Sequence[int | None], layout: str = "") -> PictureShape:
    """Read an input's shape as that of pictures. InputError for shapes that are not.

    layout: NCHW or NHWC; without it, the axis of 1 or 3 channels is found, the first of two.
    """
    dims = "x".join("?" if d is None else str(d) for d in shape)
    if len(shape) == 2 and None not in shape and min(int(d or 0) for d in shape) > 3:
        return PictureShape("HW", 1, 1, *shape)
    if len(shape) not in (3, 4):
        raise InputError(f"a picture needs an input of rank 3 or 4; '{name}' is {dims or 'a scalar'}")
    batch, inner = (shape[0], shape[1:]) if len(shape) == 4 else (1, shape)
    first, last = inner[0] in (1, 3), inner[2] in (1, 3)
    if not layout:
        if not first and not last and None not in (inner[0], inner[2]):
            raise InputError(f"input '{name}' is {dims}, which has no axis of 1 or 3 channels, so it takes no picture")
        layout = "NHWC" if last and not first else "NCHW"
    c, h, w = inner if layout == "NCHW" else (inner[2], inner[0], inner[1])
    if c not in (None, 1, 3):
        raise InputError(f"input '{name}' is {dims}, which has {c} channels in {layout}; try another --layout")
    return PictureShape(layout if len(shape) == 4 else layout.replace("N", ""), batch, c, h, w)


def open_size(shape: PictureShape, picture: tuple[int, int]) -> tuple[int, int]:
    """Return the (width, height) of an input for a picture: fixed sizes stay, open ones follow the picture."""
    w, h = picture
    if shape.height is not None and shape.width is not None:
        return shape.width, shape.height
    if shape.height is not None:
        return max(1, round(w * shape.height / h)), shape.height
    if shape.width is not None:
        return shape.width, max(1, round(h * shape.width / w))
    return picture


def picture_array(
    picture: Image.Image, w: InputSpec, shape: PictureShape, size: tuple[int, int], p: Preprocess
) -> PictureInput:
    """Make the array of an input from an RGB picture. size: (width, height) of the input. InputError."""
    alone = shape.height is None or shape.width is None
    fitted, placement = fit_picture(picture, size, "stretch" if alone else p.fit, 1.0 if alone else p.share)
    pixels: Array = np.asarray(fitted.convert("L") if shape.channels == 1 else fitted, np.float32)
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    elif p.colors == "bgr":
        pixels = pixels[..., ::-1]
    for option, values in (("--mean", p.mean), ("--std", p.std)):
        if len(values) not in (1, pixels.shape[-1]):
            raise InputError(f"{option} has {len(values)} numbers; input '{w.name}' has {pixels.shape[-1]} channels")
    made = (pixels * np.float32(p.scale) - np.asarray(p.mean, np.float32)) / np.asarray(p.std, np.float32)
    if w.dtype.is_int:
        low, high = np.iinfo(w.dtype.np).min, np.iinfo(w.dtype.np).max
        made = np.clip(np.rint(made), low, high)
    if "CHW" in shape.layout:
        made = made.transpose(2, 0, 1)
    elif shape.layout == "HW":
        made = made[..., 0]
    if shape.layout.startswith("N"):
        made = np.repeat(made[None], shape.batch or 1, axis=0)
    return PictureInput(w.name, np.ascontiguousarray(made.astype(w.dtype.np)), picture, placement, p, pixels.shape[-1])
