"""How long memory is kept where launches are linked."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from opalite.ir import Graph
from opalite.ir.device.device_descriptions import read_description
from opalite.ir.symbols import Trace
from opalite.plan.memory.liveness import LINGERING_BYTES, LINGERS, Lifetime, linger
from opalite.plan.planner import Knowledge, PlanOptions, plan
from opalite.plan.program import LaunchStep, Program, SlotArg, Storage

from ....helpers.graphs import GraphMaker


def chain(columns: int) -> Graph:
    """Two lines of softmaxes beside each other, as a decoder's queries and keys are rotated."""
    g = GraphMaker()
    lines = [g.input(name, 4, columns) for name in ("q", "k")]
    for i in range(3):
        lines = [g.add(f"{v.name}{i}", "Softmax", v, axis=1, log=False) for v in lines]
    return g.done(*lines)


def waits(program: Program) -> int:
    """Steps that write to memory which the step before them reads."""
    slots = program.slots
    found = 0
    launches = [
        [slots[a.slot] for a in s.args if isinstance(a, SlotArg)] for s in program.steps if isinstance(s, LaunchStep)
    ]
    for (x, *_), (*_, y) in itertools.pairwise(launches):
        is_both = x.storage is y.storage is Storage.DYNAMIC
        found += is_both and x.offset < y.offset + y.nbytes and y.offset < x.offset + x.nbytes
    return found


@pytest.mark.parametrize("columns, lingers", [(64, True), (1 << 15, False)])
def test_small_values_stay_a_little_longer(columns: int, lingers: bool) -> None:
    device = read_description("nvidia_h200")
    other = dataclasses.replace(device, family="amd")
    here, there = (plan(chain(columns), PlanOptions(), Knowledge(d)).program for d in (device, other))
    assert (here.arena_bytes > there.arena_bytes) == lingers
    assert (waits(here) < waits(there)) == lingers


def test_sizes_that_are_open_do_not() -> None:
    """Whether they are small depends on the run, and a program for other sizes has the same lifetimes."""
    sizes = [64, LINGERING_BYTES, LINGERING_BYTES + 1, Trace().symbol(64)]
    values = [Lifetime(n, 1, 2, Storage.DYNAMIC, "") for n in sizes] + [Lifetime(64, 1, 2, Storage.STATIC, "")]
    linger(values)
    assert [m.last for m in values] == [2 + LINGERS, 2 + LINGERS, 2, 2, 2]
