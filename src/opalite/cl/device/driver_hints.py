"""Driver hints: clock speed (performance) and scheduling priority, by extensions of Qualcomm and Khronos.

Hints are properties of a context (Qualcomm) or a queue (Khronos), set only if the device lists the extension. Numbers:
cl_ext_qcom.h and cl_ext.h. Tested with an emulation (tests/device/cl/device/test_driver_hints.py), never on a real
device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from ... import knobs
from ...errors import InputError
from ...ir.device.device_info import DeviceInfo
from ...lazy_dataclass import dataclass


@dataclass(frozen=True)
class Hints:
    """Hints: each 'high', 'normal', 'low', or None for the driver's default. Raises InputError for other values.

    performance: fast or power-saving clocks. priority: of this process's work on the device.
    """

    performance: str | None = None
    priority: str | None = None

    def __post_init__(self) -> None:
        for what, value in self.values().items():
            if value not in knobs.HINTS:
                raise InputError(f"{what} {value!r} is unknown; choose {', '.join(knobs.HINTS)}")

    def values(self) -> dict[str, str]:
        """Values by name, without None."""
        return {name: value for name, value in vars(self).items() if value is not None}


def make_hints(performance: str | None = None, priority: str | None = None) -> Hints:
    """The given hints; OPALITE_PERFORMANCE and OPALITE_PRIORITY are the defaults."""
    return Hints(
        knobs.get("OPALITE_PERFORMANCE") if performance is None else performance,
        knobs.get("OPALITE_PRIORITY") if priority is None else priority,
    )


@dataclass(frozen=True)
class _HintExtension:
    """An extension that takes a hint as property `key` of a context (`of_context`) or of a queue."""

    name: str
    of_context: bool
    key: int
    values: Mapping[str, int]


_KHRONOS = {"high": 1, "normal": 2, "low": 4}
_EXTENSIONS: dict[str, tuple[_HintExtension, ...]] = {
    "performance": (
        _HintExtension("cl_qcom_perf_hint", True, 0x40C2, {"high": 0x40C3, "normal": 0x40C4, "low": 0x40C5}),
        _HintExtension("cl_khr_throttle_hints", False, 0x1097, _KHRONOS),  # high: "full throttle", costs power
    ),
    "priority": (
        _HintExtension("cl_qcom_priority_hint", True, 0x40C9, {"high": 0x40CA, "normal": 0x40CB, "low": 0x40CC}),
        _HintExtension("cl_khr_priority_hints", False, 0x1096, _KHRONOS),
    ),
}


@dataclass(frozen=True)
class HintProperties:
    """Context and queue properties (key, value) of hints on a device, and a sentence on each hint.

    Objects with equal properties are equal.
    """

    context: tuple[tuple[int, int], ...] = ()
    queue: tuple[tuple[int, int], ...] = ()
    sentences: tuple[str, ...] = field(default=(), compare=False)

    def __bool__(self) -> bool:
        return bool(self.context or self.queue)


def hint_properties(hints: Hints, device: DeviceInfo) -> HintProperties:
    """The properties of `hints` for which `device` lists an extension."""
    context: list[tuple[int, int]] = []
    queue: list[tuple[int, int]] = []
    sentences = []
    for what, value in hints.values().items():
        extension = _find_extension(what, device)
        if extension is None:
            lacking = " nor ".join(e.name for e in _EXTENSIONS[what])
            sentences.append(f"{what} '{value}' has no effect: {device.title} lists neither {lacking}")
            continue
        (context if extension.of_context else queue).append((extension.key, extension.values[value]))
        sentences.append(f"{what} '{value}' is given to the driver by {extension.name}")
    return HintProperties(tuple(context), tuple(queue), tuple(sentences))


def supported_hints(device: DeviceInfo) -> Sequence[str]:
    """Names of the hints for which `device` lists an extension."""
    return [what for what in _EXTENSIONS if _find_extension(what, device) is not None]


def _find_extension(what: str, device: DeviceInfo) -> _HintExtension | None:
    return next((e for e in _EXTENSIONS[what] if device.has(e.name)), None)
