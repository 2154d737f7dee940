"""Parts of buffers given by their address hold what sub-buffers hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from opalite.cl.device.enumerate_devices import find_device
from opalite.cl.memory.device_pointers import BufferSlice, supports_device_pointers
from opalite.cl.runtime import Runtime
from opalite.ir import Graph
from opalite.ir.device.device_family import ADDRESSES, SLOW_SUB_BUFFERS
from opalite.passes.pipeline import place
from opalite.plan.emit_program import emit
from opalite.plan.program import LaunchStep, Program
from opalite.run.execute.executable import Executable

from ....helpers.graphs import check_same, feeds_for, run_graph
from ....null.plan.memory.test_buffer_aliasing import dense_block, fire, split_block

ADD = "kernel void add(global float *x, float v, int n) { const int i = get_global_id(0); if (i < n) x[i] += v; }"


@pytest.fixture(scope="module")
def addressed(rt: Runtime) -> Runtime:
    """The device as if its sub-buffers were slow and it took addresses, if it does."""
    if not supports_device_pointers(rt.device):
        pytest.skip(f"{rt.info.name} takes no addresses for arguments")
    found = find_device(rt.info.id)
    quirks = {*found.info.quirks, ADDRESSES} - {SLOW_SUB_BUFFERS}
    return Runtime(replace(found, info=replace(found.info, quirks=tuple(sorted(quirks)))))


def planned(rt: Runtime, graph: Graph) -> Program:
    place(graph, rt.info)
    return emit(graph, rt.info)


def test_regions_start_anywhere_and_overlap(addressed: Runtime) -> None:
    rt = addressed
    program = rt.build(ADD, "", "add")
    arena = rt.make_arena([(0, 256), (100, 256)])
    whole, part = arena.region(0, 256), arena.region(100, 16)
    assert isinstance(part, BufferSlice)
    assert arena.region(100, 16) is part
    rt.fill(whole, 0, 256)
    rt.prepare(program, "add", [part, np.float32(3), np.int32(4)], (4,)).enqueue(rt.queue)
    got = np.empty(64, np.float32)
    rt.read(whole, got)
    assert np.array_equal(got, np.where((np.arange(64) >= 25) & (np.arange(64) < 29), 3, 0))
    rt.write(part, np.full(2, 7, np.float32), offset=8)
    rt.copy(part, whole, 16)
    rt.read(whole, got)
    assert np.array_equal(got[:4], [3, 3, 7, 7])
    assert arena.sub_buffer_count == 0


def test_arenas_may_go_before_their_regions(addressed: Runtime) -> None:
    rt = addressed
    program = rt.build(ADD, "", "add")
    part = rt.make_arena([(0, 4096)]).region(1024, 64)
    rt.fill(part, 0, 64)
    rt.prepare(program, "add", [part, np.float32(2), np.int32(16)], (16,)).enqueue(rt.queue)
    got = np.empty(16, np.float32)
    rt.read(part, got)
    assert np.all(got == 2)


@pytest.mark.parametrize("make", [fire, split_block, lambda: dense_block(True), lambda: dense_block(False)])
def test_tensors_lie_in_others(addressed: Runtime, make: Callable[[], Graph]) -> None:
    program = planned(addressed, make())
    assert not any(s.kernel in ("ConcatCopy", "SliceCopy") for s in program.steps if isinstance(s, LaunchStep))
    feeds = feeds_for(make())
    executable = Executable(addressed, program, is_trial=True)
    arrays: list[Any] = [feeds[port.name] for port in program.inputs]
    executable.run([np.full_like(a, 1e4) for a in arrays])  # leaves stale values in the arena
    check_same(run_graph(make(), feeds), executable.run(arrays)[0])
    assert any(isinstance(m, BufferSlice) for m in executable.memory.objects.values())
    assert executable.memory.bytes_by_kind["arena"] == program.arena_bytes
