"""Precision: how float32 values are stored on the device, and in what they are summed; policies that mix precisions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ..errors import InputError
from .dtype import DType

HALF_MAX = 65504.0
"""Largest finite half."""
HALF_TINY = 2.0**-14
"""Smallest half with all its digits."""
_FORMAT = "opalite-precision"
_VERSION = 1


class Precision(Enum):
    """What a node does with float32: keep it, store halves and sum in float, or store and sum halves.

    WIDE keeps float32 and stores a model's own 16-bit floats as float32 too, for devices that convert them slowly, and
    where they were seen to overflow. It is the engine's choice and none of the user's (`ASKED`).
    """

    FP32 = "fp32"
    WIDE = "wide"
    FP16 = "fp16"
    FP16_FAST = "fp16_fast"

    def override(self, dtype: DType) -> DType | None:
        """The storage that a Place of a value of `dtype` states: None where the value keeps its own type."""
        if self is Precision.WIDE:
            return DType.FLOAT32 if dtype in NARROW else None
        return DType.FLOAT16 if self is not Precision.FP32 and dtype is DType.FLOAT32 else None

    def stored(self, dtype: DType) -> DType:
        """What values of `dtype` are stored as."""
        return self.override(dtype) or dtype


ASKED = (Precision.FP32, Precision.FP16, Precision.FP16_FAST)
"""What a session may be asked for."""
ROUNDED = "int8"
"""What asks for float32 whose products with weights of few bits round their rows to 8 bits."""
NARROW = (DType.FLOAT16, DType.BFLOAT16)
"""The 16-bit floats that a model may have of its own."""


@dataclass(frozen=True)
class PrecisionPolicy:
    """`precision` for every node of a model but those in `fp32`, which has the reason by the node's name.

    rounds: products with weights of 8 bits or fewer may round their rows to 8 bits, but for those nodes.
    """

    precision: Precision = Precision.FP16
    fp32: Mapping[str, str] = field(default_factory=dict)
    rounds: bool = False

    @classmethod
    def named(cls, word: str) -> PrecisionPolicy:
        """That of 'int8', which is float32 that `rounds`, or of a Precision's value for every node."""
        return cls(Precision.FP32, rounds=True) if word == ROUNDED else cls(Precision(word))

    @property
    def word(self) -> str:
        """What `named` takes for it, its exceptions apart."""
        return ROUNDED if self.rounds and self.precision is Precision.FP32 else self.precision.value

    def to_json(self) -> str:
        """JSON text that `from_json` reads back."""
        head: dict[str, Any] = {"format": _FORMAT, "version": _VERSION, "precision": self.precision.value}
        if self.rounds:
            head["rounds"] = True
        return json.dumps(head | {"fp32": dict(self.fp32)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str, where: str = "the text") -> PrecisionPolicy:
        """The policy that `to_json` wrote. InputError, calling it `where`, for anything else."""
        try:
            raw = json.loads(text)
        except ValueError as e:
            raise InputError(
                f"{where} is not a precision policy: {e}; `opalite verify --write-policy` writes one"
            ) from e
        if not isinstance(raw, dict) or raw.get("format") != _FORMAT:
            raise InputError(f"{where} is not a precision policy; `opalite verify --write-policy` writes one")
        if raw.get("version") != _VERSION:
            raise InputError(f"{where} is a policy of version {raw.get('version')}, this Opalite reads {_VERSION}")
        known = [p.value for p in ASKED]
        if raw.get("precision") not in known:
            raise InputError(f"{where}: precision {raw.get('precision')!r} is not known; choose {', '.join(known)}")
        nodes = raw.get("fp32", {})
        if not isinstance(nodes, dict) or not all(isinstance(why, str) for why in nodes.values()):
            raise InputError(f'{where}: "fp32" must give a reason, a text, for each node\'s name')
        rounds = raw.get("rounds", False)
        if not isinstance(rounds, bool):
            raise InputError(f'{where}: "rounds" is true or false, got {rounds!r}')
        return cls(Precision(raw["precision"]), nodes, rounds)
