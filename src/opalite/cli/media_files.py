"""Pictures and sounds that are given as inputs of a command, converted as its options say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..media.input_spec import InputSpec, concrete_shape
from ..media.picture_input import PICTURES, PictureInput
from ..media.picture_reader import PictureReader
from ..media.preprocess import find_preprocess
from ..media.preprocess_choice import read_labels
from ..media.sound import SOUNDS, read_channels, resample
from .shared_options import option_value

__all__ = ["PICTURES", "SOUNDS", "MediaFiles", "media_files"]

Array = np.ndarray[Any, Any]
_CONVERSIONS = ("preprocess", "mean", "std", "scale", "colors", "layout", "fit")
_RATES = ("sr", "rate", "sample_rate", "sampling_rate", "samplerate")


def media_files(
    model: str, inputs: Sequence[InputSpec], metadata: Mapping[str, str], is_bundle: bool = False
) -> MediaFiles:
    """A reader by the options of the running command."""
    numbers: dict[str, Any] = {
        k: parse_floats(v, f"--{k}") for k in ("mean", "std") if (v := option_value(k)) is not None
    }
    numbers |= {k: v for k in ("scale", "fit") if (v := option_value(k)) is not None}
    if colors := option_value("colors"):
        numbers["colors"] = colors.lower()
    named, names = option_value("preprocess"), option_value("labels")
    reader = PictureReader(
        model,
        inputs,
        metadata,
        keeps_sizes=is_bundle,
        preprocess=find_preprocess(named) if named else None,
        numbers=numbers,
        layout=(option_value("layout") or "").upper(),
    )
    return MediaFiles(reader, read_labels(Path(names)) if names else None)


@dataclass
class MediaFiles:
    """Reads pictures and sounds for a model's inputs.

    pictures: those read so far, by input. rate, samples: samples a second of the sound that was read, and their number.
    notes: lines on what was done with sounds.
    """

    reader: PictureReader
    given_labels: Sequence[str] | None = None
    pictures: dict[str, PictureInput] = field(default_factory=dict)
    rate: int | None = None
    samples: int = 0
    notes: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Say for each picture and sound what was done with it."""
        return [line for given in self.pictures.values() for line in given.lines()] + self.notes

    @property
    def labels(self) -> list[str]:
        """The names of classes: those of --labels, else the model's."""
        return self.reader.labels if self.given_labels is None else list(self.given_labels)

    def picture(self, path: Path, w: InputSpec, shapes: Mapping[str, tuple[int, ...]]) -> Array:
        """The array of a picture for the input `w`."""
        checked = {i.name: concrete_shape(i, shapes) for i in self.reader.inputs if i.name in shapes}
        made = self.pictures[w.name] = self.reader.read(path, w.name, checked)
        return made.array

    def check_used(self) -> None:
        """InputError for a conversion of pictures that was asked for where no picture is given."""
        if not self.pictures and (self.reader.preprocess is not None or self.reader.numbers or self.reader.layout):
            asked = [f"--{n}" for n in _CONVERSIONS if option_value(n) is not None]
            raise InputError(f"{', '.join(asked)}: only pictures are converted so, and none is given by -i")

    def sound(self, path: Path, w: InputSpec, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
        """The array of a sound for the input `w`, and its samples a second for an input that asks for them."""
        if not w.dtype.is_float or len(w.shape) not in (1, 2, 3):
            held = "x".join("?" if d is None else str(d) for d in w.shape)
            raise InputError(f"{path}: a sound needs floats of rank 1 to 3; input '{w.name}' is {w.dtype} {held}")
        channels, own = read_channels(path)
        samples = channels.mean(1)
        rate = option_value("rate") or own
        samples = resample(samples, own, rate)
        dims: tuple[int | None, ...] = concrete_shape(w, shapes) if w.name in shapes else w.shape
        axis = _time_axis(dims)
        length = dims[axis]
        said = f"sound    {len(samples) / rate:.2f} s at {own} Hz" + (f", resampled to {rate}" if rate != own else "")
        if channels.shape[1] > 1:
            said += f", mean of {channels.shape[1]} channels"
        if length is not None and length != len(samples):
            said += f", {'cut' if length < len(samples) else 'filled with silence'} to {length} samples"
            samples = np.pad(samples[:length], (0, max(0, length - len(samples))))
        elif not len(samples):
            raise InputError(f"{path} holds no samples, and input '{w.name}' takes as many as the file has")
        if option_value("rate") is None:
            said += "; --rate resamples to what the model expects"
        self.rate, self.samples = rate, len(samples)
        self.notes.append(said)
        full = [1 if d is None else d for d in dims]
        full[axis] = len(samples)
        if any(d != 1 for i, d in enumerate(full) if i != axis):
            held = "x".join("?" if d is None else str(d) for d in dims)
            raise InputError(f"{path}: input '{w.name}' is {held}, which takes more than one row of samples; give .npy")
        made = {w.name: np.ascontiguousarray(samples.reshape(full).astype(w.dtype.np))}
        asks = next(
            (o for o in self.reader.inputs if o.dtype.is_int and o.name.lower() in _RATES and np.prod(o.example) == 1),
            None,
        )
        if asks is not None:
            made[asks.name] = np.full(asks.example, rate, asks.dtype.np)
        return made


def _time_axis(dims: Sequence[int | None]) -> int:
    """The axis of samples: the last open one, else the longest."""
    open_axes = [i for i, d in enumerate(dims) if d is None and (i > 0 or len(dims) == 1)]
    return open_axes[-1] if open_axes else max(range(len(dims)), key=lambda i: dims[i] or 0)


def parse_floats(text: str, what: str) -> tuple[float, ...]:
    """'0.485,0.456,0.406' to floats; InputError names the option."""
    try:
        return tuple(float(p) for p in text.split(","))
    except ValueError:
        raise InputError(f"{what} {text!r} is not a number or a list of numbers separated by commas") from None
