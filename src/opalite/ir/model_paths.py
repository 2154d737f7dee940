"""Paths of models: the program of a folder as Paddle exports it, and the parameters of a program."""

from __future__ import annotations

import os
from pathlib import Path

PROGRAMS = ("inference.json", "inference.pdmodel", "model.json", "model.pdmodel", "__model__")
"""Names of Paddle's programs in a folder of one model, the best first."""


def program_in(path: str | os.PathLike[str]) -> Path | None:
    """Find the program of Paddle in the folder `path`; None for a file or a folder without one."""
    try:
        folder = Path(path)
        if not folder.is_dir():
            return None
        found = [folder / n for n in PROGRAMS if (folder / n).is_file()]
        return found[0] if found else _only(folder)
    except (OSError, ValueError):
        return None


def _only(folder: Path) -> Path | None:
    """Return the only program that has parameters of its name beside it."""
    found = [p for ending in (".json", ".pdmodel") for p in folder.glob(f"*{ending}") if params_of(p) is not None]
    return found[0] if len(found) == 1 else None


def params_of(program: Path) -> Path | None:
    """Find the file with all parameters of a program; None if each has a file of its own, or there are none."""
    names = (program.with_suffix(".pdiparams"), program.with_name("__params__"))
    return next((p for p in names if p.is_file()), None)
