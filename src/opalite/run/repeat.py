"""Repeat: the shortest way of a run that is like the last one, for models that take less time than the usual way.

Where the host walks all of the loop (cl/resident.py) and the inputs have the dtypes and shapes they had, a run is: copy
inputs, call, copy outputs. What the usual way decides anew each time - the plan for the shapes, what is bound where,
what the host has to do between - was decided when the Repeat was made.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..cl.resident import ResidentLoop
from ..plan.program import DownloadStep, Port, Program, UploadStep
from .executor import Executable
from .timing import Timing

Array = np.ndarray[Any, Any]


class Repeat:
    """Runs of one Executable for inputs by name. Not thread-safe, as the Executable is not."""

    def __init__(self, executable: Executable, loop: ResidentLoop, inputs: dict[str, Array], outputs: list[Array]):
        """inputs, outputs: memory that the loop reads and writes, as arrays of the ports' dtypes and shapes."""
        self._loop = loop
        self._inputs = [(name, memory, memory.dtype, memory.shape) for name, memory in inputs.items()]
        self._outputs = outputs
        self._transfers = len(inputs) + len(outputs)
        self._counters = executable.rt.counters

    def run(self, feeds: Mapping[str, Any]) -> tuple[list[Any], Timing] | None:
        """The outputs in order, and where the time went; None if something about the feeds is new."""
        started = time.perf_counter()
        inputs = self._inputs
        if len(feeds) != len(inputs):
            return None
        for name, _, dtype, shape in inputs:
            array = feeds.get(name)
            if type(array) is not np.ndarray or array.dtype != dtype or array.shape != shape:
                return None
        for name, memory, _, _ in inputs:
            memory[...] = feeds[name]
        uploaded = time.perf_counter()
        self._loop.run()
        computed = time.perf_counter()
        outputs = [memory.copy() for memory in self._outputs]
        self._counters.transfers += self._transfers
        ended = time.perf_counter()
        return outputs, Timing(
            upload_s=uploaded - started,
            compute_s=computed - uploaded,
            download_s=ended - computed,
            total_s=ended - started,
        )


def repeat_of(executable: Executable, program: Program) -> Repeat | None:
    """How to repeat the executable's last run, or None where that takes the usual way.

    program: the executable's, with ports that are the model's own inputs and outputs.
    """
    loop = executable.resident
    if loop is None or executable.may_overflow:
        return None
    steps = executable.program.steps
    uploads = {s.host: s.slot for s in steps if isinstance(s, UploadStep)}
    downloads = {s.host: s.slot for s in steps if isinstance(s, DownloadStep)}
    read, written = [p.host for p in program.inputs], [p.host for p in program.outputs]
    if sorted(uploads) != sorted(read) or sorted(downloads) != sorted(written):
        return None
    inputs = {p.name: _memory(executable, p, uploads[p.host]) for p in program.inputs}
    outputs = [_memory(executable, p, downloads[p.host]) for p in program.outputs]
    found = {name: memory for name, memory in inputs.items() if memory is not None}
    made = [memory for memory in outputs if memory is not None]
    if len(found) < len(inputs) or len(made) < len(outputs):
        return None
    return Repeat(executable, loop, found, made)


def _memory(executable: Executable, port: Port, slot: int) -> Array | None:
    """Host memory that is the slot's, as an array like the port; None where it is the device's own."""
    return executable.exchange.shared(slot, port.dtype.np, port.shape)
