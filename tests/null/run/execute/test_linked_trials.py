"""The text of a linked kernel that is launched: the fast one if its trial succeeds, else the safe one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from opalite.cl.programs.kernel_trials import Trial
from opalite.plan.program import Slot, Storage
from opalite.ptx.linked_launch import SYNC_BYTES, GridShape
from opalite.run.execute.strategies.link_stretches import LinkError, StretchLinker, Unsafe
from opalite.run.execute.strategies.linked_stretch import BufferRange, Stretch

WEIGHTS, MORE, ARENA = SimpleNamespace(size=4096), SimpleNamespace(size=512), SimpleNamespace(size=256)
SLOTS = [Slot(0, 64, Storage.STATIC), Slot(1, 64, Storage.DYNAMIC), Slot(2, 64, Storage.STATIC)]
PROGRAM: Any = SimpleNamespace(slots=SLOTS)
PLACES: Any = {0: BufferRange(WEIGHTS, 0, 64), 1: BufferRange(ARENA, 0, 64), 2: BufferRange(MORE, 0, 64)}


class Trials:
    """Records what was tried; fails for some texts."""

    def __init__(self, *deadly: str) -> None:
        self.deadly, self.tried = deadly, list[Trial]()

    def fault(self, trial: Trial) -> str:
        self.tried.append(trial)
        return "it dies" if trial.program.decode() in self.deadly else ""


def stretch(name: str) -> Unsafe:
    return Stretch([0, 1], [0, 1, 2], [1], f"fast {name}", False, name), lambda: f"safe {name}"


def tried(trials: Trials, *names: str) -> list[str]:
    linker = object.__new__(StretchLinker)
    linker._rt, linker.table, linker.shape = SimpleNamespace(trials=trials), None, GridShape(3, 96)  # type: ignore[assignment]
    linker._program, linker._places = PROGRAM, PLACES
    return [s.text for s in linker._tried([stretch(n) for n in names])]


def test_what_survives_is_taken_as_it_is() -> None:
    trials = Trials()
    assert tried(trials, "a", "b") == ["fast a", "fast b"]
    assert sorted(t.program for t in trials.tried) == [b"fast a", b"fast b"]


def test_a_text_that_dies_gives_way_to_the_safe_one() -> None:
    trials = Trials("fast a")
    assert tried(trials, "a", "b") == ["safe a", "fast b"]
    assert sorted(t.program for t in trials.tried) == [b"fast a", b"fast b", b"safe a"]


def test_where_both_die_launches_stay_apart() -> None:
    with pytest.raises(LinkError, match="it dies"):
        tried(Trials("fast a", "safe a"), "a", "b")


def test_equal_texts_are_tried_once() -> None:
    trials = Trials()
    assert tried(trials, "a", "a") == ["fast a", "fast a"]
    assert len(trials.tried) == 1


def test_a_trial_takes_little_memory() -> None:
    """Constants share the memory of the largest one; what launches write has its own."""
    trials = Trials()
    tried(trials, "a")
    (trial,) = trials.tried
    assert list(trial.sizes) == [SYNC_BYTES, 1, WEIGHTS.size, ARENA.size]
    assert list(trial.addresses) == [0, -1, 2, 3, 2]
    assert (trial.items, trial.group) == (3 * 96, 96)
