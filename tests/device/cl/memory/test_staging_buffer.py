"""How values cross on GPUs that work in the host's memory."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyopencl as cl
import pytest

from opalite.cl.device.enumerate_devices import find_device
from opalite.cl.memory import host_memory
from opalite.cl.memory.device_tensor import DeviceTensor
from opalite.cl.memory.host_device_copies import Transfers
from opalite.cl.memory.staging_buffer import StagingBuffer
from opalite.cl.runtime import Runtime
from opalite.passes.pipeline import place
from opalite.plan.emit_program import emit
from opalite.run.execute.executable import Executable

from ....helpers.graphs import check_same, feeds_for, run_graph
from ....null.plan.memory.test_buffer_aliasing import fire


@pytest.fixture(scope="module")
def unified(rt: Runtime) -> Runtime:
    """The device as if it were a GPU in the host's memory."""
    found = find_device(rt.info.id)
    return Runtime(replace(found, info=replace(found.info, kind="gpu", unified_memory=True)))


def test_values_cross_through_mapped_memory(unified: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transfers, "write", None)
    monkeypatch.setattr(Transfers, "read", None)
    staging = StagingBuffer(unified, 96)
    assert staging.write(np.arange(24).reshape(4, 6).T, np.dtype(np.float32)) is None
    got = np.empty((6, 4), np.float32)
    staging.read(got)
    assert np.array_equal(got, np.arange(24).reshape(4, 6).T)
    fewer = np.empty(3, np.float32)
    staging.read(fewer)
    assert np.array_equal(fewer, [0, 6, 12])
    staging.write(np.empty((0, 3)), np.dtype(np.float32))
    staging.read(np.empty(0, np.float32))


def test_launches_see_what_was_mapped(unified: Runtime) -> None:
    rt = unified
    program = rt.build("kernel void twice(global int *x) { x[get_global_id(0)] *= 2; }", "", "twice")
    tensor = DeviceTensor(rt, (5,), np.dtype(np.int32))
    tensor.write(np.arange(5))
    rt.prepare(program, "twice", [tensor.buffer], (5,)).enqueue(rt.queue)
    assert np.array_equal(tensor.numpy(), 2 * np.arange(5))


def test_memory_of_others_is_copied(unified: Runtime) -> None:
    buffer = unified.allocate(16)
    staging = StagingBuffer(unified, 16, buffer)
    kept = staging.write(np.arange(4), np.dtype(np.int32))
    got = np.empty(4, np.int32)
    also = staging.read(got)
    unified.finish()
    assert np.array_equal(got, np.arange(4))
    assert kept is not None
    assert also is not None


def test_what_cannot_change_is_written_once(rt: Runtime) -> None:
    """An array that others may change is written again at each run; what is stored is known until others write."""

    def read() -> list[int]:
        got = np.empty(4, np.int32)
        staging.read(got)
        rt.finish()
        return got.tolist()

    staging, kind = StagingBuffer(rt, 16), np.dtype(np.int32)
    given = np.arange(4, dtype=np.int32)
    view = given[:]
    view.flags.writeable = False
    for array in (given, view):
        for first in (5, 7):
            given[0] = first
            staging.write(array, kind)
            assert read() == [first, 1, 2, 3]
    fixed = np.arange(4, 8, dtype=np.int32)
    fixed.flags.writeable = False
    before = rt.counters.transfers
    for _ in range(3):
        staging.write(fixed, kind)
    assert rt.counters.transfers == before + 1
    other = StagingBuffer(rt, 16)
    other.write(given, kind)
    staging.copy_from(other, 16)
    rt.finish()
    staging.write(fixed, kind)
    assert read() == [4, 5, 6, 7]
    if (shared := staging.shared(kind, (4,))) is not None:
        shared[0] = 9
        staging.write(fixed, kind)
        assert read() == [4, 5, 6, 7]


def test_a_program_runs(unified: Runtime) -> None:
    graph = fire()
    place(graph, unified.info)
    program = emit(graph, unified.info)
    feeds = feeds_for(fire())
    got = Executable(unified, program, is_trial=True).run([feeds[port.name] for port in program.inputs])[0]
    check_same(run_graph(fire(), feeds), got)


def test_buffers_of_a_unified_memory_are_the_hosts(unified: Runtime) -> None:
    """ALLOC_HOST_PTR: without it, mapping copies on the drivers of phones."""
    flags = cl.mem_flags.ALLOC_HOST_PTR
    assert StagingBuffer(unified, 96).buffer.flags & flags
    assert not unified.allocate(96).flags & flags, "memory that the host never reads"


def test_pinned_memory_is_the_drivers(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """ALLOC_HOST_PTR: without it, an H200 reads host arrays at a fifth of the rate."""
    made: list[int] = []

    def make(context: cl.Context, flags: int, nbytes: int) -> cl.Buffer:
        made.append(flags)
        return cl.Buffer(context, flags, nbytes)

    monkeypatch.setattr(host_memory, "cl", SimpleNamespace(**{**vars(cl), "Buffer": make}))
    card = replace(rt.info, kind="gpu", unified_memory=False)
    array = host_memory.pinned_bytes(rt.context, rt.queue, card, 96)
    assert array.nbytes == 96
    assert not array.any()
    assert made
    assert all(flags & cl.mem_flags.ALLOC_HOST_PTR for flags in made)
