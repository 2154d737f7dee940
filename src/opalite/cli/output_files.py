"""Model outputs of commands as files."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError


def save_arrays(path: Path, outputs: Mapping[str, Any]) -> None:
    """Write all outputs to .npz, or the first to .npy, by the suffix."""
    try:
        if path.suffix.lower() == ".npz":
            _save_npz(path, outputs)
        else:
            np.save(path, np.asarray(next(iter(outputs.values()))))
    except (OSError, ValueError) as e:
        raise InputError(f"outputs could not be written to {path}: {e}") from e


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
