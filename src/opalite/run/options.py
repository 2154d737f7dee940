"""CompileOptions: what a session was asked for."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import InputError
from ..knobs import LEVELS, MEMORIES, PRECISIONS


@dataclass(frozen=True)
class CompileOptions:
    """What a session was asked for. InputError for words that are not among the choices."""

    precision: str = "auto"
    memory: str = "auto"
    tune: str = "none"
    strict: bool = False

    def __post_init__(self) -> None:
        for what, value, choices in (
            ("precision", self.precision, PRECISIONS),
            ("memory", self.memory, MEMORIES),
            ("tune", self.tune, LEVELS),
        ):
            if value not in choices:
                raise InputError(f"{what} {value!r} is not known; choose {', '.join(choices)}")
