"""Whole buffers for intermediates: no two live slots share one."""

from __future__ import annotations

import itertools

from opalite.cl.memory.buffer_pool import BufferPool
from opalite.plan.program import LaunchStep, Program, Slot, SlotArg, Storage
from opalite.run.execute.memory.slot_memory import pool_slots, slot_lives


def launch(*slots: int) -> LaunchStep:
    return LaunchStep(0, "k", tuple(SlotArg(s) for s in slots), (1,), None)


def test_buffers_are_reused_only_when_their_slot_is_dead() -> None:
    slots = [Slot(i, 64, Storage.DYNAMIC) for i in range(5)] + [Slot(5, 64, Storage.STATIC)]
    steps = [launch(5, 0), launch(0, 1), launch(1, 2), launch(2, 0, 3)]
    numbers = itertools.count()
    found = pool_slots(Program("p", slots=slots, steps=list(steps)), BufferPool(lambda nbytes: [next(numbers)]))
    assert sorted(found) == [0, 1, 2, 3, 4]
    assert len({id(found[i]) for i in range(3)}) == 3  # 0 lives to the end, 1 and 2 meet in a launch
    assert found[3] is found[1]


def test_slots_live_from_their_first_step_to_their_last() -> None:
    slots = [Slot(0, 64, Storage.DYNAMIC, 0, label="a"), Slot(1, 32, Storage.DYNAMIC, 64, label="b")]
    slots += [Slot(2, 64, Storage.STATIC), Slot(3, 64, Storage.SEPARATE), Slot(4, 16, Storage.DYNAMIC, 0, label="c")]
    steps = [launch(2, 0), launch(0, 1), launch(1, 4), launch(4, 3)]
    found = slot_lives(Program("p", slots=slots, steps=list(steps)))
    assert found == {2: (0, 0), 0: (0, 1), 1: (1, 2), 4: (2, 3), 3: (3, 3)}


def test_tensors_inside_others() -> None:
    """A slot that contains others is live while any of them is, and they get no buffer of the pool."""
    whole, other = Slot(0, 256, Storage.DYNAMIC, 128, label="whole"), Slot(3, 64, Storage.DYNAMIC, 0, label="c")
    parts = [Slot(i + 1, 128, Storage.DYNAMIC, 128 * (i + 1), label="ab"[i], within=0) for i in range(2)]
    program = Program("p", slots=[whole, *parts, other], steps=[launch(1, 3), launch(2), launch(0, 3)])
    assert slot_lives(program) == {0: (0, 2), 1: (0, 0), 2: (1, 1), 3: (0, 2)}
    assert sorted(pool_slots(program, BufferPool(lambda nbytes: object()))) == [3]
