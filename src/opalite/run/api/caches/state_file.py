"""Files of State.save: the values of a state, and how many runs it has seen."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from ....errors import InputError

Array = np.ndarray[Any, Any]
_RUNS = "__runs__"


def write_state(path: str | os.PathLike[str], runs: int, arrays: Mapping[str, Array]) -> None:
    """Write an .npz file."""
    with open(path, "wb") as file:
        values: dict[str, Any] = {_RUNS: np.array(runs), **arrays}
        np.savez(file, **values)


def read_state(path: str | os.PathLike[str]) -> tuple[int, dict[str, Array]]:
    """Return (runs, arrays by input name). InputError for another file."""
    try:
        with np.load(path, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as e:
        raise InputError(f"'{os.fspath(path)}' is not a file of State.save: {e}") from e
    return int(found.pop(_RUNS, 0)), found
