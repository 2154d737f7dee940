"""HostFastPath: the shortest way to run a program: copy in, call the megakernel, copy out.

It serves programs whose megakernel the calling thread executes (pocl/megakernel/host_thread_loop.py), in memory that
host and device share. Host operators before and after the launches run, too. Nothing is bound, and no phases are
iterated.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ....cl.memory.device_tensor import DeviceTensor
from ....errors import OpaliteError
from ....plan.program import DownloadStep, HostStep, ReferenceStep, UploadStep
from ....plan.template.dynamic_parameters import Values
from ....pocl.megakernel.host_thread_loop import HostThreadLoop
from ..loops.loop_iterations import HOSTED, LoopCarryPlan, LoopIterations, iterations_of
from ..run_trace import RunTrace
from .megakernel_strategy import MegakernelStrategy

Array = np.ndarray[Any, Any]
Held = Sequence[tuple[int, Array]]
"""Buffers that the megakernel reads or writes, as arrays, each with the host slot that it is copied from or to."""


class HostFastPath:
    """Runs on arrays, with arrays as outputs. Not thread-safe.

    loop: the megakernel. rows: its steps, on the instance's own buffers. inputs, outputs: buffers with host slots.
    transfers: of a run. is_whole: whether a run is copies from all inputs, the megakernel, and copies to all outputs.
    """

    name = "host_fast_path"

    def __init__(self, megakernel: MegakernelStrategy, loop: HostThreadLoop, inputs: Held, outputs: Held) -> None:
        self.loop = loop
        self.rows = megakernel.own_rows
        self.inputs = inputs
        self.outputs = outputs
        self.instance = megakernel.instance
        self._megakernel, self._is_dynamic = megakernel, megakernel.instance.dynamic is not None
        phases = megakernel.phases
        self._iterations: dict[LoopCarryPlan, LoopIterations | str] = {}
        at = next(i for i, p in enumerate(phases) if isinstance(p, HostThreadLoop))
        self._before = [p for p in phases[:at] if isinstance(p, HostStep | ReferenceStep)]
        self._after = [p for p in phases[at:] if isinstance(p, HostStep | ReferenceStep)]
        made = {n for s in self._before for n in s.outputs}
        self._uploads = [p for p in phases[:at] if isinstance(p, UploadStep) and p.host in made]
        self.transfers = len(inputs) + len(outputs)
        self._bytes_up = sum(a.nbytes for _, a in inputs)
        self._bytes_down = sum(a.nbytes for _, a in outputs)
        self._launches = len(self.instance.launch_steps)
        self._counters = self.instance.rt.counters
        read, written = {n for n, _ in inputs}, {n for n, _ in outputs}
        hosted = self._before or self._after or self._uploads or self._is_dynamic
        self.is_whole = (
            not hosted and read.issuperset(self.instance.inputs) and written.issuperset(self.instance.outputs)
        )

    def run(
        self,
        host_values: list[Any],
        on_device: Mapping[int, DeviceTensor],
        values: Values = (),
        meanwhile: Callable[[], None] | None = None,
    ) -> RunTrace:
        """See Strategy.run. Nothing is on the device."""
        loop = self.loop
        if values:
            self._megakernel.begin(values)
        elif loop.arrays is not self.rows:
            loop.set_table(self.rows)
        clock = time.perf_counter
        host_s = 0.0
        started = clock()
        if self._before:
            self._prepare_uploads(host_values)
            host_s = clock() - started
            started += host_s
        if self._is_dynamic:
            for number, memory in self.inputs:
                array = host_values[number]
                _first(memory, array.shape)[...] = array
        else:
            for number, memory in self.inputs:
                memory[...] = host_values[number]
        uploaded = clock()
        loop.run()
        computed = clock()
        if self._is_dynamic:
            shapes = self.instance.io.shapes
            for number, memory in self.outputs:
                shape = shapes.get(number)
                host_values[number] = (memory if shape is None else _first(memory, shape)).copy()
        else:
            for number, memory in self.outputs:
                host_values[number] = memory.copy()
        ended = clock()
        self._counters.transfers += self.transfers
        if self._after:
            for step in self._after:
                self.instance.run_on_host(step, host_values)
            host_s += clock() - ended
        trace = self.make_trace(uploaded - started, computed - uploaded, ended - computed)
        trace.host_s = host_s
        return trace

    def make_trace(self, upload_s: float, compute_s: float, download_s: float) -> RunTrace:
        """The trace of a run of these seconds."""
        return RunTrace(
            upload_s=upload_s,
            compute_s=compute_s,
            download_s=download_s,
            strategy=self.name,
            launches=self._launches,
            bytes_up=self._bytes_up,
            bytes_down=self._bytes_down,
            waits=1,
        )

    def _prepare_uploads(self, host_values: list[Any]) -> None:
        """Run the host operators before the launches, and upload their results."""
        for step in self._before:
            self.instance.run_on_host(step, host_values)
        for upload in self._uploads:
            self.instance.io.upload(upload, host_values[upload.host])

    def iterations(self, plan: LoopCarryPlan) -> LoopIterations | str:
        """A runner of the program as the body of a loop, or why there is none."""
        if plan not in self._iterations:
            is_alone = not (self._before or self._after or self._uploads)
            self._iterations[plan] = iterations_of(self, plan) if is_alone else HOSTED
        return self._iterations[plan]

    def trace_of_iterations(self, made: int) -> RunTrace:
        """The trace of `made` iterations, without seconds."""
        self._counters.transfers += self.transfers
        return RunTrace(
            strategy="loop_iterations",
            launches=made * self._launches,
            bytes_up=self._bytes_up,
            bytes_down=made * self._bytes_down,
            waits=1,
        )

    def replay(self) -> None:
        """See Strategy.replay."""
        self.loop.set_table(self.rows)
        for step in (*self._before, *self._after):
            raise OpaliteError(f"{step.node} runs on the host, so the launches alone compute nothing")
        self.loop.run()


def _first(memory: Array, shape: tuple[int, ...]) -> Array:
    """The first elements of a buffer of the largest sizes, as an array of `shape`."""
    return memory.reshape(-1)[: math.prod(shape)].reshape(shape)


def make_host_fast_path(megakernel: MegakernelStrategy) -> HostFastPath | None:
    """The fast path of `megakernel`; None if the program or its buffers do not fit.

    A program with state has none: its state is in buffers of the caller, and the fast path has the program's own.
    """
    host_loop = megakernel.host_thread_loop
    program, io = megakernel.instance.program, megakernel.instance.io
    if host_loop is None or program.reserved:
        return None
    ports = {p.host: p for p in program.inputs}
    uploads = [s for s in program.steps if isinstance(s, UploadStep)]
    downloads = [s for s in program.steps if isinstance(s, DownloadStep)]
    if len(ports) < len(program.inputs) or any(s.host not in ports and s.host in program.host_consts for s in uploads):
        return None
    inputs = [(s.host, io.memory(s.slot).shared(s.dtype.np, ports[s.host].shape)) for s in uploads if s.host in ports]
    outputs = [(s.host, io.memory(s.slot).shared(s.dtype.np, s.shape)) for s in downloads]
    read = [(n, memory) for n, memory in inputs if memory is not None]
    written = [(n, memory) for n, memory in outputs if memory is not None]
    if len(read) < len(inputs) or len(written) < len(outputs):
        return None
    return HostFastPath(megakernel, host_loop, read, written)
