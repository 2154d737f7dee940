"""A double of a driver that takes hints: their properties are noted and taken out, the rest goes to OpenCL."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import opalite.cl.runtime as runtime_module
from opalite.cl.device import context
from opalite.cl.device.enumerate_devices import find_device
from opalite.cl.queue import raw_opencl_calls

OF_CONTEXT, OF_QUEUE = (0x40C2, 0x40C9), (0x1096, 0x1097)
_INVALID = {"clCreateContext": -64, "clCreateCommandQueueWithProperties": -30}


class HintDriver:
    """contexts, queues: the hints that each was opened with, in order. refuses: the function that takes none."""

    def __init__(self, refuses: str = "") -> None:
        self.contexts: list[list[tuple[int, int]]] = []
        self.queues: list[list[tuple[int, int]]] = []
        self.flags: list[int] = []
        self.refuses = refuses
        self._alive: list[Any] = []

    def find_call(self, name: str, result: Any, *arguments: Any) -> Callable[..., Any] | None:
        """The function of that name, as a C function."""
        real = raw_opencl_calls.find_call(name, result, *arguments)
        assert real is not None
        of, word, at, notes = {
            "clCreateContext": (OF_CONTEXT, ctypes.c_ssize_t, 0, self.contexts),
            "clCreateCommandQueueWithProperties": (OF_QUEUE, ctypes.c_uint64, 2, self.queues),
        }[name]

        def call(*args: Any) -> Any:
            pairs = _read(args[at], word)
            notes.append([p for p in pairs if p[0] in of])
            self.flags += [value for key, value in pairs if key == 0x1093]
            if name == self.refuses:
                ctypes.c_int32.from_address(args[-1]).value = _INVALID[name]
                return None
            rest = [number for key, value in pairs if key not in of for number in (key, value)]
            kept = (word * (len(rest) + 1))(*rest, 0)
            return real(*args[:at], ctypes.cast(kept, ctypes.c_void_p), *args[at + 1 :])

        self._alive.append(ctypes.CFUNCTYPE(result, *arguments)(call))
        found: Callable[..., Any] = self._alive[-1]
        return found


def _read(address: int, word: Any) -> list[tuple[int, int]]:
    """The pairs of a list of properties."""
    numbers: list[int] = []
    while True:
        key = word.from_address(address + len(numbers) * ctypes.sizeof(word)).value
        if not key:
            return list(zip(numbers[::2], numbers[1::2], strict=True))
        value = word.from_address(address + (len(numbers) + 1) * ctypes.sizeof(word)).value
        numbers += [key, value]


def use_hint_driver(
    monkeypatch: pytest.MonkeyPatch, device: str, extensions: Sequence[str], refuses: str = ""
) -> HintDriver:
    """Have `device` list `extensions`, whose properties the driver given takes, until the test's end."""
    found = find_device(device)
    info = dataclasses.replace(found.info, extensions=(*found.info.extensions, *extensions))
    driver = HintDriver(refuses)
    monkeypatch.setattr(runtime_module, "find_device", lambda request: dataclasses.replace(found, info=info))
    monkeypatch.setattr(runtime_module, "_runtimes", {})
    monkeypatch.setattr(context, "find_call", driver.find_call)
    return driver
