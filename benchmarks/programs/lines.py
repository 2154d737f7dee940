"""A Program as lines that can be compared: memory is named by its meaning, not by slot numbers.

The first line of a program describes its ports and memory; each step has a line. Contents (weights, constants,
protobufs) are digests. Sources are digests too, with their texts in a side table.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from opalite.ir.constants.lazy_array import LazyArray
from opalite.plan.program import (
    DownloadStep,
    HostStep,
    LaunchStep,
    LocalArg,
    Port,
    Program,
    ReferenceStep,
    ScalarArg,
    SlotArg,
    Step,
    StepArg,
    Storage,
    UploadStep,
)

Record = dict[str, Any]

ONLY_SHOWN = ("kernel", "node", "file", "ports")
"""Keys that say what a record is about; a program is the same without them."""


def digest(data: bytes | memoryview) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()[:12]


class Writer:
    """Converts programs to lines. `texts` collects their sources by digest."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def records(self, program: Program) -> Iterator[Record]:
        """One line for the program and one per step."""
        names = _Names(program)
        report = program.memory
        yield {
            "step": "program",
            "ports": [p.name for p in (*program.inputs, *program.outputs)],
            "inputs": [_port(p) for p in program.inputs],
            "outputs": [f"{_port(p)} = {names.host(p.host)}" for p in program.outputs],
            "arena": program.arena_bytes,
            "lower_bound": report.lower_bound,
            "own": report.separate,
            "static": report.static,
            "nested": report.nested,
            "images": [f"{w}x{h} {dtype.short}" for w, h, dtype in program.image_pool],
            "halves": program.stores_halves,
        }
        for step in program.steps:
            yield self._record(program, step, names)

    def _record(self, program: Program, step: Step, names: _Names) -> Record:
        work: Record
        match step:
            case LaunchStep():
                source = program.sources[step.source]
                key = digest(source.text.encode())
                self.texts.setdefault(key, source.text)
                return {
                    "step": "launch",
                    "entry": step.entry,
                    "source": key,
                    "options": source.options,
                    "grid": list(step.grid),
                    "group": None if step.group is None else list(step.group),
                    "open_group": step.open_group,
                    "args": [names.argument(a) for a in step.args],
                    "flops": step.flops,
                    "bytes": step.nbytes,
                    "file": source.name,
                    "kernel": step.kernel,
                    "node": step.node,
                }
            case UploadStep():
                work = {"from": names.host(step.host), "to": names.memory(step.slot), "dtype": step.dtype.short}
            case DownloadStep():
                work = {"from": names.memory(step.slot), "to": names.host(step.host), "dtype": step.dtype.short}
                work |= {"shape": list(step.shape)}
            case HostStep():
                work = {"op": f"{step.domain}:{step.op_type}@{step.opset}", "proto": digest(step.proto)}
            case ReferenceStep():
                work = {"op": step.op.name, "attrs": _plain(step.op.attributes())}
        if isinstance(step, HostStep | ReferenceStep):
            work["from"] = [names.host(i) for i in step.inputs]
            work["to"] = [names.host(i) for i in step.outputs]
        return {"step": type(step).__name__.removesuffix("Step").lower(), **work, "node": step.node}


class _Names:
    """Names of a program's slots. Slots without a planned position are numbered in order of use."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._memory: dict[int, str] = {}
        self._host = {p.host: f"input {i}" for i, p in enumerate(program.inputs)}
        self._own = 0

    def argument(self, a: StepArg) -> str:
        match a:
            case SlotArg():
                return self.memory(a.slot)
            case ScalarArg():
                return f"{a.value.dtype.name} {a.value.item()!r}"
            case LocalArg():
                return f"local {a.nbytes}"

    def memory(self, number: int) -> str:
        """A device slot: its bytes of the arena, image of the pool or contents, or its number among the others."""
        if number not in self._memory:
            self._memory[number] = self._describe(number)
        return self._memory[number]

    def _describe(self, number: int) -> str:
        slot = self._program.slots[number]
        if slot.storage is Storage.STATIC:
            return f"weight {_contents(self._program.weights[number])}{' in an image' if slot.image else ''}"
        region = f"{slot.offset}+{slot.nbytes}"
        if slot.within >= 0 and self._program.slots[slot.within].storage is not Storage.DYNAMIC:
            return f"{self.memory(slot.within)} at {region}"
        size = "x".join(map(str, slot.image or ()))
        if slot.storage is Storage.DYNAMIC:
            return f"image {slot.image_slot}: {size} {slot.image_dtype.short}" if slot.image else f"arena {region}"
        self._own += 1
        return f"own {self._own}: {slot.nbytes}{f' as {size} {slot.image_dtype.short}' if slot.image else ''}"

    def host(self, number: int) -> str:
        """A host slot: an input, a constant, or its number among the others."""
        if number < 0:
            return "absent"
        constant = self._program.host_consts.get(number)
        if constant is not None:
            return f"constant {_contents(constant)}"
        return self._host.setdefault(number, f"host {len(self._host)}")


def _port(port: Port) -> str:
    return f"{port.dtype.short}[{','.join(map(str, port.shape))}]"


def _contents(array: np.ndarray[Any, Any] | LazyArray) -> str:
    if isinstance(array, LazyArray):
        array = array.read()
    shape = f"{array.dtype.name}[{','.join(map(str, array.shape))}]"
    if array.dtype.hasobject:
        return f"{shape} {digest(repr(array.tolist()).encode())}"
    return f"{shape} {digest(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)}"


def _plain(x: Any) -> Any:
    """Attributes as JSON: records by field, arrays by contents, anything else as text."""
    if isinstance(x, np.ndarray):
        return _contents(x)
    if isinstance(x, bytes):
        return digest(x)
    if isinstance(x, bool | int | float | None):
        return x
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        x = {f.name: getattr(x, f.name) for f in dataclasses.fields(x)}
    if isinstance(x, Mapping):
        return {str(k): _plain(v) for k, v in sorted(x.items())}
    if isinstance(x, list | tuple):
        return [_plain(i) for i in x]
    return str(x)
