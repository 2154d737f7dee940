"""Model inputs for commands: arrays from files, pictures or a random seed."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ..errors import InputError, OpaliteError
from ..ir.dtype import DType
from ..media.input_spec import InputSpec, concrete_shape
from ..media.picture_input import is_picture
from ..media.sound import is_wave
from ..run.model.model_inputs_outputs import assumed_shapes
from .media_files import PICTURES, SOUNDS, MediaFiles

Array = np.ndarray[Any, Any]
_MARKS = {".npy": b"\x93NUMPY", ".npz": b"PK"}  # magic bytes: NumPy treats files without them as pickles
_STANDARD_INPUT = "-"


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
        with assumed_shapes(self.assumed):
            yield


def load_inputs(
    files: Sequence[str],
    wanted: Sequence[InputSpec],
    shapes: Mapping[str, tuple[int, ...]],
    media: MediaFiles,
    seed: int,
) -> Inputs:
    """Load an array for every input: from NAME=FILE or FILE (in the model's order), others random by seed.

    media: reads pictures and sounds.
    """
    by_name = {w.name: w for w in wanted}
    for name in shapes:
        if name not in by_name:
            raise InputError(f"--shape names {name!r}, but the model's inputs are {', '.join(by_name) or '(none)'}")
    feeds: dict[str, Array] = {}
    for item in files:
        name, eq, path = item.partition("=")
        if "://" in item:
            raise InputError(
                f"{item}: inputs are read from files; fetch it first, for example by curl, or pipe it to -i -"
            )
        if eq and name in by_name and not Path(item).exists():
            feeds.update(_load(Path(path), [by_name[name]], shapes, media))
            continue
        if eq and not Path(item).exists() and Path(path).exists():
            names = ", ".join(by_name) or "(none)"
            raise InputError(f"{item}: no input is named {name!r}; the model's inputs are {names}")
        missing = [w for w in wanted if w.name not in feeds]
        if not missing:
            raise InputError(f"{item}: the model's {len(wanted)} inputs all have a file already")
        feeds.update(_load(Path(item), missing, shapes, media))
    for name, shape in shapes.items():
        if name in feeds and feeds[name].shape != shape:
            asked, held = "x".join(map(str, shape)), "x".join(map(str, feeds[name].shape)) or "one number"
            raise InputError(f"--shape {name}:{asked} does not fit the file of input '{name}', which holds {held}")
    media.check_used()
    rng = np.random.default_rng(seed)
    assumed: dict[str, tuple[int, ...]] = {}
    random_names = tuple(w.name for w in wanted if w.name not in feeds)
    for w in wanted:
        if w.name in random_names:
            feeds[w.name] = random_input(w, shapes, rng)
            if None in w.shape and w.name not in shapes:
                assumed[w.name] = w.example
    return Inputs(feeds, assumed, random_names)


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
    path: Path, wanted: Sequence[InputSpec], shapes: Mapping[str, tuple[int, ...]], media: MediaFiles
) -> dict[str, Array]:
    if str(path) == _STANDARD_INPUT and not path.exists():
        with TemporaryDirectory() as folder:
            copied = Path(folder) / "standard input"
            copied.write_bytes(sys.stdin.buffer.read())
            return _load(copied, wanted, shapes, media)
    if not path.is_file():
        raise InputError(f"input file {path} {'is a folder' if path.is_dir() else 'does not exist'}")
    suffix = _kind(path)
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
            return {w.name: media.picture(path, w, shapes)}
        if suffix in SOUNDS:
            return media.sound(path, w, shapes)
    except OpaliteError:
        raise
    except Exception as e:  # readers of damaged archives and pictures raise whatever they like
        raise InputError(f"{path} could not be read as input '{w.name}': {e or type(e).__name__}") from e
    raise InputError(
        f"{path}: unknown kind of input; expected .npy, .npz, .pb, .wav or a picture ({', '.join(PICTURES)} ...)"
    )


def _kind(path: Path) -> str:
    """The suffix of a file's kind: its own, or what its content says. Pictures have many suffixes, pipes have none."""
    suffix = path.suffix.lower()
    if suffix in (*_MARKS, ".pb", *PICTURES, *SOUNDS):
        return suffix
    with path.open("rb") as f:
        head = f.read(16)
    if is_wave(head):
        return SOUNDS[0]
    found = next((kind for kind, mark in _MARKS.items() if head.startswith(mark)), None)
    return found or (PICTURES[0] if is_picture(path) else suffix)


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
