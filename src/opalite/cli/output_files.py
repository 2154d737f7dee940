"""Model outputs of commands: files, pictures, top classes."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from .input_files import PICTURES

Array = np.ndarray[Any, Any]


def save_outputs(path: Path, outputs: Mapping[str, Any]) -> None:
    """Write all outputs to .npz, or the first to .npy or a picture, by the suffix."""
    suffix = path.suffix.lower()
    if not outputs:
        raise InputError(f"{path} cannot be written: the model has no outputs")
    try:
        if suffix == ".npz":
            _save_npz(path, outputs)
        elif suffix == ".npy":
            np.save(path, np.asarray(next(iter(outputs.values()))))
        else:
            check_kind(path)
            to_picture(np.asarray(next(iter(outputs.values())))).save(path)
    except (OSError, ValueError) as e:
        raise InputError(f"outputs could not be written to {path}: {e}") from e


def check_kind(path: Path) -> None:
    """InputError for a suffix that `save_outputs` does not support."""
    if path.suffix.lower() not in (".npz", ".npy", *PICTURES):
        raise InputError(f"{path}: unknown kind of output; write .npz, .npy or a picture ({', '.join(PICTURES)})")


def check_writable(*paths: str | None) -> None:
    """InputError for files in missing or read-only folders; called before the work."""
    for path in paths:
        if path is None:
            continue
        folder = Path(path).parent
        if not folder.is_dir():
            raise InputError(f"{path} cannot be written: its folder does not exist")
        if not os.access(path if Path(path).exists() else folder, os.W_OK):
            raise InputError(f"{path} cannot be written: the folder {folder.resolve()} or the file may not be changed")


def write_text(path: str | Path, text: str) -> None:
    """Write `text` in UTF-8; bytes of undecodable names stay. InputError for a file that cannot be written."""
    try:
        Path(path).write_bytes(text.encode("utf-8", "surrogateescape"))
    except OSError as e:
        raise InputError(f"{path} cannot be written: {e.strerror or e}") from e


def _save_npz(path: Path, outputs: Mapping[str, Any]) -> None:
    """Like np.savez, which cannot write an array called 'file'."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, value in outputs.items():
            array = np.asarray(value)
            if array.dtype.hasobject:
                array = array.astype(str)
            with archive.open(f"{name}.npy", "w", force_zip64=True) as f:
                np.lib.format.write_array(f, array, allow_pickle=False)


def to_picture(array: Array) -> Any:
    """A PIL picture from [1,C,H,W], [C,H,W], [H,W,C] or [H,W] (C is 1, 3 or 4); floats in [0, 1] become bytes."""
    from PIL import Image

    a = array
    while a.ndim > 3 and a.shape[0] == 1:
        a = a[0]
    if a.ndim == 3 and a.shape[0] in (1, 3, 4):
        a = a.transpose(1, 2, 0)
    if a.ndim == 3 and a.shape[2] == 1:
        a = a[..., 0]
    if a.ndim not in (2, 3) or (a.ndim == 3 and a.shape[2] not in (3, 4)):
        raise InputError(f"an output of shape {array.shape} is not a picture; write it to .npy or .npz")
    if a.dtype != np.uint8:
        low, high = float(a.min()), float(a.max())
        if low >= -0.5 and high <= 1.5:
            a = a * 255.0
        a = np.clip(np.rint(a), 0, 255).astype(np.uint8)
    return Image.fromarray(np.ascontiguousarray(a))


def read_labels(path: Path) -> list[str]:
    """Read one label per line; of a synset line 'n01440764 tench, Tinca tinca' only the words."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as e:
        raise InputError(f"labels {path} could not be read: {e}") from e
    labels = []
    for line in lines:
        head, _, rest = line.partition(" ")
        labels.append(rest if len(head) == 9 and head[0] == "n" and head[1:].isdigit() else line)
    return labels


def top_classes(scores: Array, k: int) -> list[tuple[int, float]]:
    """(class, score) of the k highest scores of one output row."""
    row = np.asarray(scores, np.float64).reshape(scores.shape[0] if scores.ndim > 1 else 1, -1)[0]
    order = np.argsort(-row, kind="stable")[:k]
    return [(int(i), float(row[i])) for i in order]
