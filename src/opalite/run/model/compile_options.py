"""CompileOptions: what a session was asked for."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

from ... import knobs
from ...errors import InputError
from ...ir.precision import PrecisionPolicy
from ...knobs import LEVELS, MEMORIES, PRECISIONS
from ...lazy_dataclass import dataclass


def parse_precision(asked: Any) -> str | PrecisionPolicy:
    """One of PRECISIONS, or a policy: itself, or the path of its JSON file. None takes OPALITE_PRECISION.

    InputError for anything else.
    """
    if asked is None:
        asked = knobs.get("OPALITE_PRECISION")
    if isinstance(asked, PrecisionPolicy):
        return asked
    if isinstance(asked, str) and asked in PRECISIONS:
        return asked
    if isinstance(asked, (str, os.PathLike)) and Path(asked).suffix == ".json":
        try:
            text = Path(asked).read_text()
        except OSError as e:
            raise InputError(f"precision policy {os.fspath(asked)!r} cannot be read: {e.strerror}") from e
        return PrecisionPolicy.from_json(text, os.fspath(asked))
    words = ", ".join(PRECISIONS)
    raise InputError(f"precision {asked!r} is not known; choose {words}, or the .json file of a policy")


def parse_tolerance(asked: Any) -> float:
    """A finite number above 0. None takes OPALITE_TOLERANCE. InputError for anything else."""
    if asked is None:
        return float(knobs.get("OPALITE_TOLERANCE"))
    try:
        number = math.nan if isinstance(asked, bool) else float(asked)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 < number < math.inf:
        raise InputError(
            f"tolerance {asked!r} is not a number above 0; 0.001 lets precision auto change an output by a thousandth "
            "of its largest value"
        )
    return number


@dataclass(frozen=True)
class CompileOptions:
    """Options of compilation. InputError for a value that is not among the choices."""

    precision: str | PrecisionPolicy = "fp32"
    memory: str = "auto"
    tune: str = "none"
    strict: bool = False
    tolerance: float = 1e-3  # of 'auto'
    trust: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "precision", parse_precision(self.precision))
        for what, value, choices in (("memory", self.memory, MEMORIES), ("tune", self.tune, LEVELS)):
            if value not in choices:
                raise InputError(f"{what} {value!r} is not known; choose {', '.join(choices)}")
