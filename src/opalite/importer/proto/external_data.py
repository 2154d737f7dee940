"""Checks of external tensor data: the entries `location`, `offset` and `length` of a tensor."""

from __future__ import annotations

import re
import stat
from pathlib import Path

from ...errors import ModelFormatError

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def file_kind(mode: int) -> str:
    """Describe the type of a file that is no regular one, from its mode."""
    return next((name for is_kind, name in _KINDS if is_kind(mode)), "no regular file")


def find_data_file(folder: Path, model_folder: Path | None, tensor: str, location: str) -> Path:
    """Return the regular file at `location`, relative to `folder`, with links and ".." resolved.

    ModelFormatError, with the name `tensor`, if there is none, or if it is neither inside `folder` nor, through a link,
    directly in `model_folder`.
    """
    if not location:
        raise ModelFormatError(f"tensor '{tensor}' has external data, but names no file: the model is damaged")
    if Path(location).is_absolute():
        raise ModelFormatError(
            f"tensor '{tensor}' points to the absolute path '{location}', which is outside the model's folder: a data "
            "file is named relative to the model's folder"
        )
    root = folder.resolve()
    try:
        path = (root / location).resolve()
        inside = path.is_relative_to(root) or path.parent == model_folder
        mode = (root / location).stat().st_mode if inside else 0
    except FileNotFoundError:
        raise ModelFormatError(
            f"the data of tensor '{tensor}' should be in '{root / location}', which does not exist: "
            "copy the data file next to the model"
        ) from None
    except (OSError, ValueError, RuntimeError) as e:  # name too long, zero byte, circular links
        shown = f"{location[:80]}…" if len(location) > 80 else location
        raise ModelFormatError(f"tensor '{tensor}' points to {shown!r}, which cannot be the name of a file: {e}") from e
    if not inside:
        raise ModelFormatError(f"tensor '{tensor}' points to '{location}', which is outside the model's folder")
    if not stat.S_ISREG(mode):
        raise ModelFormatError(
            f"the data of tensor '{tensor}' should be in '{path}', which is {file_kind(mode)}: copy the data file there"
        )
    return path


def read_number(tensor: str, key: str, text: str) -> int:
    """Parse an offset or a length in bytes; 0 if absent. ModelFormatError unless it is an integer below 2^63."""
    if not text:
        return 0
    number = int(text) if re.fullmatch("[0-9]{1,19}", text) else -1
    if not 0 <= number < 1 << 63:
        raise ModelFormatError(
            f"tensor '{tensor}' has the {key} {text!r} in its data file; expected a number from 0 to 2^63 - 1: the "
            "model is damaged"
        )
    return number
