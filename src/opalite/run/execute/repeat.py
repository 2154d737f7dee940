"""Repeat: the shortest way of a run that is like the last one, for models that take less time than the usual way.

Where the host walks all of the loop (host_loop.py) and the inputs have the dtypes and shapes they had, a run is:
copy inputs, call, copy outputs, and what operators on the host do before and after that. What the usual way decides
anew each time - the plan for the shapes, what is bound where - was decided when the Repeat was made.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...plan.program import DownloadStep, Port, UploadStep
from ...pocl.loop.host_loop import HostLoop
from ..model.model import Whole
from .executable import Executable
from .trace import Timing

Array = np.ndarray[Any, Any]


class Repeat:
    """Runs of one Executable for inputs by name. Not thread-safe, as the Executable is not."""

    def __init__(
        self,
        executable: Executable,
        loop: HostLoop,
        ports: list[Port],
        inputs: list[tuple[str, Array]],
        outputs: list[Array],
        host: HostPart | None,
    ) -> None:
        """ports: the inputs. inputs, outputs: memory that the loop reads and writes, as arrays. host: None for none."""
        self._loop = loop
        self._ports = [(p.name, p.dtype.np, p.shape) for p in ports]
        self._texts = [name for name, dtype, _ in self._ports if dtype.kind == "O"]
        self._inputs = inputs
        self._outputs = outputs
        self._host = host
        self._transfers = len(inputs) + len(outputs)
        self._counters = executable.rt.counters

    def run(self, feeds: Mapping[str, Any]) -> tuple[list[Any], Timing] | None:
        """The outputs in order, and where the time went; None if something about the feeds is new."""
        started = time.perf_counter()
        ports, host = self._ports, self._host
        if len(feeds) != len(ports):
            return None
        for name, dtype, shape in ports:
            array = feeds.get(name)
            if type(array) is not np.ndarray or array.dtype != dtype or array.shape != shape:
                return None
        for name in self._texts:
            if not all(type(v) is str for v in feeds[name].flat):
                return None
        before = after = 0.0
        values = None
        if host is not None:
            values = host.begin(feeds)
            before = time.perf_counter() - started
        for name, memory in self._inputs:
            memory[...] = feeds[name]
        uploaded = time.perf_counter()
        self._loop.run()
        computed = time.perf_counter()
        outputs = [memory.copy() for memory in self._outputs]
        self._counters.transfers += self._transfers
        ended = time.perf_counter()
        if host is not None:
            assert values is not None
            outputs = host.end(values, outputs)
            after = time.perf_counter() - ended
        return outputs, Timing(
            upload_s=uploaded - started - before,
            compute_s=computed - uploaded,
            download_s=ended - computed,
            host_s=before + after,
            total_s=ended - started + after,
        )


class HostPart:
    """What operators on the host do before and after the loop of an Executable."""

    def __init__(self, executable: Executable, whole: Whole, downloads: list[DownloadStep]) -> None:
        """downloads: where the loop's outputs go, in order."""
        program = whole.program
        self._executable, self._finish = executable, whole.finish
        self._inputs = [(p.name, p.host) for p in program.inputs]
        self._values: list[Any] = [None] * program.host_slots
        for number, array in program.host_consts.items():
            self._values[number] = array
        self._before, self._after = executable.host_steps()
        found = {n for s in self._before for n in s.outputs}
        self._uploads = [s for s in executable.program.steps if isinstance(s, UploadStep) and s.host in found]
        self._downloads = [s.host for s in downloads]
        own = {*self._downloads, *(n for s in (*self._before, *self._after) for n in s.outputs)}
        # What the model or the caller holds is theirs.
        self._outputs = [(p.host, p.host not in own) for p in program.outputs]

    def begin(self, feeds: Mapping[str, Any]) -> list[Any]:
        """Values by number on the host, after what is done before the loop; what the loop reads is where it looks."""
        values = self._values.copy()
        for name, number in self._inputs:
            values[number] = feeds[name]
        executable = self._executable
        for step in self._before:
            executable.run_on_host(step, values)
        for upload in self._uploads:
            executable.exchange.upload(upload, values[upload.host])
        return values

    def end(self, values: list[Any], outputs: list[Array]) -> list[Any]:
        """The model's outputs, given those of the loop."""
        for number, array in zip(self._downloads, outputs, strict=True):
            values[number] = array
        for step in self._after:
            self._executable.run_on_host(step, values)
        found = [values[n].copy() if shared else values[n] for n, shared in self._outputs]
        return found if self._finish is None else self._finish(found)


def repeat_of(executable: Executable, whole: Whole) -> Repeat | None:
    """How to repeat the executable's last run, which was `whole`, or None where that takes the usual way."""
    loop = executable.host_loop
    if loop is None or executable.may_overflow:
        return None
    program, steps = whole.program, executable.program.steps
    ports = {p.host: p for p in program.inputs}
    downloads = [s for s in steps if isinstance(s, DownloadStep)]
    before, after = executable.host_steps()
    constants = len(ports) < len(program.inputs) or any(
        isinstance(s, UploadStep) and s.host not in ports and s.host in program.host_consts for s in steps
    )
    if constants:
        return None
    exchange = executable.exchange
    read = [(s, ports[s.host]) for s in steps if isinstance(s, UploadStep) and s.host in ports]
    inputs = [(p.name, exchange.shared(s.slot, s.dtype.np, p.shape)) for s, p in read]
    outputs = [exchange.shared(s.slot, s.dtype.np, s.shape) for s in downloads]
    found = [(name, memory) for name, memory in inputs if memory is not None]
    made = [memory for memory in outputs if memory is not None]
    if len(found) < len(inputs) or len(made) < len(outputs):
        return None
    plain = [p.host for p in program.outputs] == [s.host for s in downloads]
    host = (
        None if plain and not before and not after and whole.finish is None else HostPart(executable, whole, downloads)
    )
    return Repeat(executable, loop, program.inputs, found, made, host)
