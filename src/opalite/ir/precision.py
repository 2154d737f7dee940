"""Precision of float32 values: stored type, accumulation type, and policies that mix precisions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Any

from ..errors import InputError
from ..lazy_dataclass import dataclass
from .dtype import DType

HALF_MAX = 65504.0
"""Largest finite half."""
HALF_TINY = 2.0**-14
"""Smallest normal half."""
_FORMAT = "opalite-precision"
_VERSION = 1


class Precision(Enum):
    """Storage and accumulation of a node's float32 values.

    FP32 keeps float32. FP16 stores halves and accumulates in float32. FP16_FAST stores halves and accumulates in
    halves. WIDE keeps float32 and also stores the model's own 16-bit floats as float32: for devices that convert halves
    slowly, and after an overflow. The engine alone selects WIDE (`ASKED`).
    """

    FP32 = "fp32"
    WIDE = "wide"
    FP16 = "fp16"
    FP16_FAST = "fp16_fast"

    def override(self, dtype: DType) -> DType | None:
        """The storage type of a Place for a value of `dtype`; None if the value keeps its own type."""
        if self is Precision.WIDE:
            return DType.FLOAT32 if dtype in NARROW else None
        return DType.FLOAT16 if self is not Precision.FP32 and dtype is DType.FLOAT32 else None

    def stored(self, dtype: DType) -> DType:
        """The stored element type of values of `dtype`."""
        return self.override(dtype) or dtype


ASKED = (Precision.FP32, Precision.FP16, Precision.FP16_FAST)
"""Precisions that a user may request."""
ROUNDED = "int8"
"""Requests float32, with dynamic quantization of activations in matmuls of weights of 8 bits or fewer."""
NARROW = (DType.FLOAT16, DType.BFLOAT16)
"""The 16-bit floats of a model's own tensors."""


@dataclass(frozen=True)
class PrecisionPolicy:
    """`precision` for every node except those in `fp32`, which maps node names to reasons.

    rounds: matmuls with weights of 8 bits or fewer may quantize their activations to 8 bits, except in nodes of `fp32`.
    """

    precision: Precision = Precision.FP16
    fp32: Mapping[str, str] = field(default_factory=dict)
    rounds: bool = False

    @classmethod
    def named(cls, word: str) -> PrecisionPolicy:
        """The policy named `word`: 'int8' (float32 with `rounds`) or a Precision's value."""
        return cls(Precision.FP32, rounds=True) if word == ROUNDED else cls(Precision(word))

    @property
    def word(self) -> str:
        """The argument of `named` for this policy, without its exceptions."""
        return ROUNDED if self.rounds and self.precision is Precision.FP32 else self.precision.value

    def to_json(self) -> str:
        """JSON text that `from_json` reads back."""
        head: dict[str, Any] = {"format": _FORMAT, "version": _VERSION, "precision": self.precision.value}
        if self.rounds:
            head["rounds"] = True
        return json.dumps(head | {"fp32": dict(self.fp32)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str, where: str = "the text") -> PrecisionPolicy:
        """The policy that `to_json` wrote. InputError names the source as `where`."""
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
