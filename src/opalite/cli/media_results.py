"""Outputs of a command as people look at them: recognised, printed as lines, and written as pictures or sounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from ..errors import InputError
from ..media.answer_check import choose_by_answers
from ..media.drawing import draw
from ..media.picture_input import PICTURES, PictureInput
from ..media.preprocess import Preprocess
from ..media.preprocess_choice import NO_EVIDENCE
from ..media.recognition import picture_of
from ..media.results import Boxes, Classes, Embedding, Result
from ..media.sound import SOUNDS, map_picture, write_sound
from .console import print_lines
from .media_files import MediaFiles
from .output_files import save_arrays
from .shared_options import option_value

_LEAST_SOUND = 256  # samples
KINDS = (".npz", ".npy", *SOUNDS, *PICTURES)


def only_picture(media: MediaFiles) -> PictureInput | None:
    """The picture that the outputs are about: the last that was read."""
    return next(reversed(media.pictures.values()), None)


def recognize_outputs(media: MediaFiles, outputs: Mapping[str, Any], top: int | None) -> Result | None:
    """Find what outputs mean for the picture that was given. None without a picture, or without a known meaning."""
    given = only_picture(media)
    if given is None:
        return None
    least = option_value("threshold")
    settings = {} if least is None else {"threshold": least}
    return media.reader.recognize(outputs, given, media.labels, top=5 if top is None else top, **settings)


def check_guess(session: Any, media: MediaFiles, feeds: dict[str, Any], result: Result | None) -> bool:
    """Try a classifier whose conversion nothing says with another, and take that one if the answers ask for it.

    Returns whether `feeds` changed.
    """
    given = only_picture(media)
    if given is None or not isinstance(result, Classes) or given.preprocess.reason != NO_EVIDENCE:
        return False
    now = given.preprocess

    def classify(picture: Any, preprocess: Preprocess) -> Any:
        media.reader.choose(given.name, preprocess)
        held = media.reader.read(picture, given.name, {given.name: given.array.shape})
        return session.run(None, {**feeds, given.name: held.array})[0]

    chosen = choose_by_answers(classify, given.picture, now)
    media.reader.choose(given.name, chosen)
    if chosen == now:
        return False
    held = media.reader.read(given.picture, given.name, {given.name: given.array.shape})
    media.pictures[given.name] = replace(held, note=given.note)
    feeds[given.name] = held.array
    return True


def print_result(console: Console, result: Result) -> None:
    """Say what the outputs mean, and by which signs that was recognised."""
    words = {Boxes: "found", Classes: "classes"}
    console.print(f"result   {words.get(type(result), type(result).__name__.lower())}: {result.reason}", soft_wrap=True)
    print_lines(console, result.lines())


def print_unknown(console: Console, media: MediaFiles) -> None:
    """Say that the outputs for a picture have no meaning that is known here, and what to do."""
    if media.pictures:
        advice = "-o FILE.npz writes them; --labels names classes or characters"
        console.print(
            f"result   not recognised: the outputs' shapes and values fit nothing known; {advice}", soft_wrap=True
        )


def result_record(media: MediaFiles, result: Result | None) -> dict[str, Any]:
    """The conversion of pictures and sounds and the meaning of outputs, as plain data for --json."""
    return {"given": media.lines(), "result": None if result is None else result.to_raw()}


def check_kind(path: Path) -> None:
    """InputError for a suffix that `write_outputs` does not support."""
    if path.suffix.lower() not in KINDS:
        kinds = ", ".join(PICTURES)
        raise InputError(f"{path}: unknown kind of output; write .npz, .npy, .wav or a picture ({kinds})")


def write_outputs(path: Path, outputs: Mapping[str, Any], media: MediaFiles, result: Result | None) -> None:
    """Write all outputs to .npz, the first to .npy or .wav, or what they mean to a picture, by the suffix."""
    suffix = path.suffix.lower()
    if not outputs:
        raise InputError(f"{path} cannot be written: the model has no outputs")
    if suffix in (".npz", ".npy"):
        save_arrays(path, outputs)
        return
    array = np.asarray(next(iter(outputs.values())))
    try:
        if suffix in SOUNDS:
            write_sound(path, _samples(path, array), _rate(media, array))
            return
        given = only_picture(media)
        made: Any = None
        if given is not None and result is not None and not isinstance(result, Embedding):
            made = draw(result, given.picture, given.placement)
        elif given is None:
            made = picture_of(array, Preprocess()) or map_picture(array)
        if made is None:
            advice = "" if given is not None else ", or give a picture by -i to see what it means"
            raise InputError(f"an output of shape {array.shape} is not a picture; write it to .npy or .npz{advice}")
        made.save(path)
    except (OSError, ValueError) as e:
        raise InputError(f"outputs could not be written to {path}: {e}") from e


def _samples(path: Path, array: Any) -> Any:
    if array.dtype.kind != "f" or array.size < _LEAST_SOUND or array.size != max(array.shape):
        raise InputError(f"{path}: an output of {array.dtype}{list(array.shape)} is no sound; write it to .npy or .npz")
    return array.reshape(-1)


def _rate(media: MediaFiles, array: Any) -> int:
    """Samples a second of an output: the input's, times how much longer it became if that is a whole number."""
    rate = media.rate or option_value("rate") or 16000
    if media.samples and array.size % media.samples == 0:
        return int(rate * (array.size // media.samples))
    return int(rate)
