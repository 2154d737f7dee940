"""Model inputs for commands: arrays from files, pictures or a random seed."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError, OpaliteError
from ..ir.dtype import DType

Array = np.ndarray[Any, Any]
PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")

_MARKS = {".npy": b"\x93NUMPY", ".npz": b"PK"}  # magic bytes: NumPy treats files without them as pickles


@dataclass(frozen=True)
class Preprocess:
    """Conversion of a picture to a tensor: (pixel * scale - mean) / std, channels in `order`, axes in `layout`."""

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    scale: float = 1.0
    layout: str = "NCHW"
    order: str = "RGB"


PIXELS_TO_ONE = Preprocess(scale=1 / 255)


@dataclass(frozen=True)
class InputSpec:
    """Name, dtype, shape (None for open dimensions) and example shape of an input."""

    name: str
    dtype: DType
    shape: tuple[int | None, ...]
    example: tuple[int, ...]


@dataclass(frozen=True)
class Inputs:
    """Arrays by input name, and the shapes assumed for open dimensions. random_names: of random inputs."""

    feeds: dict[str, Array]
    assumed: dict[str, tuple[int, ...]]
    random_names: tuple[str, ...] = ()

    def assumptions(self) -> list[str]:
        """A line for every assumed shape."""
        return [
            f"shape    {name}: {list(shape)} assumed; give --shape for another" for name, shape in self.assumed.items()
        ]

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Add the assumed shapes to errors of the block, since they may not suit the model."""
        try:
            yield
        except OpaliteError as e:
            for name, shape in self.assumed.items():
                dims = "x".join(map(str, shape))
                e.add_context(f"with shape {dims} assumed for input '{name}', which is open; give --shape {name}:...")
            raise


def parse_floats(text: str, what: str) -> tuple[float, ...]:
    """'0.485,0.456,0.406' to floats; InputError names the option."""
    try:
        return tuple(float(p) for p in text.split(","))
    except ValueError:
        raise InputError(f"{what} {text!r} is not a number or a list of numbers separated by commas") from None


def load_inputs(
    files: Sequence[str],
    wanted: Sequence[InputSpec],
    shapes: Mapping[str, tuple[int, ...]],
    preprocess: Preprocess,
    seed: int,
) -> Inputs:
    """Load an array for every input: from NAME=FILE or FILE (in the model's order), others random by seed."""
    by_name = {w.name: w for w in wanted}
    for name in shapes:
        if name not in by_name:
            raise InputError(f"--shape names {name!r}, but the model's inputs are {', '.join(by_name) or '(none)'}")
    feeds: dict[str, Array] = {}
    for item in files:
        name, eq, path = item.partition("=")
        if eq and name in by_name and not Path(item).exists():
            feeds.update(_load(Path(path), [by_name[name]], shapes, preprocess))
            continue
        if eq and not Path(item).exists() and Path(path).exists():
            names = ", ".join(by_name) or "(none)"
            raise InputError(f"{item}: no input is named {name!r}; the model's inputs are {names}")
        missing = [w for w in wanted if w.name not in feeds]
        if not missing:
            raise InputError(f"{item}: the model's {len(wanted)} inputs all have a file already")
        feeds.update(_load(Path(item), missing, shapes, preprocess))
    for name, shape in shapes.items():
        if name in feeds and feeds[name].shape != shape:
            asked, held = "x".join(map(str, shape)), "x".join(map(str, feeds[name].shape)) or "one number"
            raise InputError(f"--shape {name}:{asked} does not fit the file of input '{name}', which holds {held}")
    rng = np.random.default_rng(seed)
    assumed: dict[str, tuple[int, ...]] = {}
    random_names = tuple(w.name for w in wanted if w.name not in feeds)
    for w in wanted:
        if w.name in random_names:
            feeds[w.name] = random_input(w, shapes, rng)
            if None in w.shape and w.name not in shapes:
                assumed[w.name] = w.example
    return Inputs(feeds, assumed, random_names)


def concrete_shape(w: InputSpec, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """The shape given on the command line, else the example's."""
    given = shapes.get(w.name)
    if given is None or not w.shape:  # () may also mean that the model declares no shape
        return w.example if given is None else given
    if len(given) != len(w.shape) or any(d is not None and d != g for d, g in zip(w.shape, given, strict=True)):
        dims = "x".join("?" if d is None else str(d) for d in w.shape)
        raise InputError(f"--shape {w.name}:{'x'.join(map(str, given))} does not fit input '{w.name}', which is {dims}")
    return given


def random_input(w: InputSpec, shapes: Mapping[str, tuple[int, ...]], rng: np.random.Generator) -> Array:
    """Seeded noise: normal floats, small non-negative ints, fair booleans."""
    shape = concrete_shape(w, shapes)
    if w.dtype is DType.STRING:
        raise InputError(f"input '{w.name}' holds strings, which cannot be made at random; give it with --load-inputs")
    if math.prod(shape) > sys.maxsize // 8:
        dims = "x".join(map(str, shape))
        raise InputError(f"input '{w.name}' is {w.dtype} {dims}, which no memory can hold; give a smaller --shape")
    if w.dtype is DType.BOOL:
        return rng.random(shape) < 0.5
    if w.dtype.is_int:
        return rng.integers(0, 8, shape).astype(w.dtype.np)
    return rng.standard_normal(shape).astype(w.dtype.np)


def _load(
    path: Path, wanted: Sequence[InputSpec], shapes: Mapping[str, tuple[int, ...]], preprocess: Preprocess
) -> dict[str, Array]:
    if not path.is_file():
        raise InputError(f"input file {path} {'is a folder' if path.is_dir() else 'does not exist'}")
    suffix = path.suffix.lower()
    w = wanted[0]
    try:
        if suffix in _MARKS and not _begins_with(path, _MARKS[suffix]):
            raise ValueError(f"it does not begin as {suffix} files do; write it with NumPy")
        if suffix == ".npz":
            return _from_npz(path, wanted)
        if suffix == ".npy":
            return {w.name: _as_wanted(np.load(path, allow_pickle=False), w, path)}
        if suffix == ".pb":
            from ..importer.proto.decode import load_tensor_file

            return {w.name: _as_wanted(load_tensor_file(path), w, path)}
        if suffix in PICTURES:
            return {w.name: load_picture(path, w, shapes, preprocess)}
    except OpaliteError:
        raise
    except Exception as e:  # readers of damaged archives and pictures raise whatever they like
        raise InputError(f"{path} could not be read as input '{w.name}': {e or type(e).__name__}") from e
    raise InputError(f"{path}: unknown kind of input; expected .npy, .npz, .pb or a picture ({', '.join(PICTURES)})")


def _begins_with(path: Path, mark: bytes) -> bool:
    with path.open("rb") as f:
        return f.read(len(mark)) == mark


def _from_npz(path: Path, wanted: Sequence[InputSpec]) -> dict[str, Array]:
    """Arrays by input name; the key 'in:NAME' means NAME. A single unnamed array is the only input."""
    with np.load(path, allow_pickle=False) as archive:
        arrays = {k.removeprefix("in:"): archive[k] for k in archive.files if not k.startswith("out:")}
    found = {w.name: _as_wanted(arrays[w.name], w, path) for w in wanted if w.name in arrays}
    if not found and len(arrays) == 1 and len(wanted) == 1:
        return {wanted[0].name: _as_wanted(next(iter(arrays.values())), wanted[0], path)}
    if not found:
        names = ", ".join(w.name for w in wanted)
        raise InputError(f"{path} holds {', '.join(arrays) or 'nothing'}, but the model's inputs are {names}")
    return found


def _as_wanted(array: Array, w: InputSpec, path: Path) -> Array:
    if array.dtype != w.dtype.np:
        if not np.can_cast(array.dtype, w.dtype.np, "same_kind"):
            raise InputError(f"{path}: input '{w.name}' is {w.dtype}, the file holds {array.dtype}")
        array = array.astype(w.dtype.np)
    return array


def load_picture(path: Path, w: InputSpec, shapes: Mapping[str, tuple[int, ...]], p: Preprocess) -> Array:
    """A picture resized (bilinear) to the input's height and width where these are fixed, as a batch of one."""
    from PIL import Image

    if p.layout not in ("NCHW", "NHWC") or p.order not in ("RGB", "BGR"):
        raise InputError(f"--layout {p.layout} --order {p.order}: expected NCHW or NHWC, and RGB or BGR")
    # An open dimension takes the picture's size, but a bundle was compiled for a size.
    shape = tuple(e if d is None and e > 1 else d for d, e in zip(w.shape, w.example, strict=True))
    if w.name in shapes:
        shape = concrete_shape(w, shapes)
    if len(shape) not in (3, 4):
        raise InputError(f"{path}: a picture needs an input of rank 3 or 4; '{w.name}' has rank {len(shape)}")
    c, h, wd = (shape[-3:]) if p.layout == "NCHW" else (shape[-1], shape[-3], shape[-2])
    if c not in (None, 1, 3):
        dims = "x".join("?" if d is None else str(d) for d in shape)
        raise InputError(f"input '{w.name}' is {dims}, which has {c} channels in {p.layout}; try another --layout")
    if 0 in p.std:
        raise InputError("--std must not be 0: pixels are divided by it")
    with Image.open(path) as opened:
        picture = opened.convert("L" if c == 1 else "RGB")
    if h is not None and wd is not None and picture.size != (wd, h):
        picture = picture.resize((wd, h), Image.Resampling.BILINEAR)
    pixels: Array = np.asarray(picture, np.float32)
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    elif p.order == "BGR":
        pixels = pixels[..., ::-1]
    for name, values in (("--mean", p.mean), ("--std", p.std)):
        if len(values) not in (1, pixels.shape[-1]):
            raise InputError(f"{name} has {len(values)} numbers; the picture has {pixels.shape[-1]} channels")
    mean, std = np.asarray(p.mean, np.float32), np.asarray(p.std, np.float32)
    pixels = ((pixels * p.scale - mean) / std).astype(np.float32)
    if p.layout == "NCHW":
        pixels = pixels.transpose(2, 0, 1)
    if len(w.shape) == 4:
        pixels = pixels[None]
        if shape[0] not in (None, 1):
            pixels = np.repeat(pixels, int(shape[0]), axis=0)
    if w.dtype is DType.UINT8:
        pixels = np.clip(np.rint(pixels), 0, 255)
    return np.ascontiguousarray(pixels.astype(w.dtype.np))
