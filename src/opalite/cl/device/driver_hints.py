"""Hints to the driver: how fast the device's clocks should be, and who comes first on it.

They are properties of a context (Qualcomm) or of a queue (Khronos), given to a device that lists their extension and
to no other. Numbers: cl_ext_qcom.h and cl_ext.h. Tested with a double of the extensions
(tests/device/cl/test_hints.py), never run on a device that has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ... import knobs
from ...errors import InputError
from ...ir.device.device_info import DeviceInfo


@dataclass(frozen=True)
class Hints:
    """'high', 'normal' or 'low' each; None leaves it to the driver. InputError for another word.

    performance: clocks that are fast, or that save power. priority: of this work beside that of others.
    """

    performance: str | None = None
    priority: str | None = None

    def __post_init__(self) -> None:
        for what, value in self.given(all_=True).items():
            if value is not None and value not in knobs.HINTS:
                raise InputError(f"{what} {value!r} is not known; choose {', '.join(knobs.HINTS)}")

    def given(self, all_: bool = False) -> dict[str, str | None]:
        """By name; those that are None only with `all_`."""
        both = {"performance": self.performance, "priority": self.priority}
        return both if all_ else {k: v for k, v in both.items() if v is not None}


def make_hints(performance: str | None = None, priority: str | None = None) -> Hints:
    """The hints given, else those of OPALITE_PERFORMANCE and OPALITE_PRIORITY."""
    return Hints(
        knobs.get("OPALITE_PERFORMANCE") if performance is None else performance,
        knobs.get("OPALITE_PRIORITY") if priority is None else priority,
    )


@dataclass(frozen=True)
class _Way:
    """An extension that takes a hint, as a property `key` of a context or else of a queue."""

    extension: str
    of_context: bool
    key: int
    values: Mapping[str, int]


_KHRONOS = {"high": 1, "normal": 2, "low": 4}
_WAYS: dict[str, tuple[_Way, ...]] = {
    "performance": (
        _Way("cl_qcom_perf_hint", True, 0x40C2, {"high": 0x40C3, "normal": 0x40C4, "low": 0x40C5}),
        _Way("cl_khr_throttle_hints", False, 0x1097, _KHRONOS),  # high: "full throttle", costs power
    ),
    "priority": (
        _Way("cl_qcom_priority_hint", True, 0x40C9, {"high": 0x40CA, "normal": 0x40CB, "low": 0x40CC}),
        _Way("cl_khr_priority_hints", False, 0x1096, _KHRONOS),
    ),
}


@dataclass(frozen=True)
class HintProperties:
    """What hints come to on a device: pairs of a property and its value, and a sentence for each hint.

    Equal where the same reaches the driver.
    """

    context: tuple[tuple[int, int], ...] = ()
    queue: tuple[tuple[int, int], ...] = ()
    sentences: tuple[str, ...] = field(default=(), compare=False)

    def __bool__(self) -> bool:
        return bool(self.context or self.queue)


def hint_properties(hints: Hints, device: DeviceInfo) -> HintProperties:
    """How `hints` are given to `device`: of each those that it lists an extension for."""
    context: list[tuple[int, int]] = []
    queue: list[tuple[int, int]] = []
    sentences = []
    for what, value in hints.given().items():
        assert value is not None
        way = _find_way(what, device)
        if way is None:
            lacking = " nor ".join(w.extension for w in _WAYS[what])
            sentences.append(f"{what} '{value}' has no effect: {device.name} lists neither {lacking}")
            continue
        (context if way.of_context else queue).append((way.key, way.values[value]))
        sentences.append(f"{what} '{value}' is given to the driver by {way.extension}")
    return HintProperties(tuple(context), tuple(queue), tuple(sentences))


def supported_hints(device: DeviceInfo) -> Sequence[str]:
    """The names of the hints that `device` lists an extension for."""
    return [what for what in _WAYS if _find_way(what, device) is not None]


def _find_way(what: str, device: DeviceInfo) -> _Way | None:
    return next((w for w in _WAYS[what] if device.has(w.extension)), None)
