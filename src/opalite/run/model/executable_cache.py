"""ExecutableCache: what a model has compiled, by the segment or bundled program that it was compiled from."""

from __future__ import annotations

import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from ...cl.programs.background_throttle import background_planning
from ...plan.program import Program
from ...plan.template.program_template import Template
from ..execute.dynamic_shape_runs import DynamicShapeRuns
from ..execute.executable import SIZES_KEPT, Executable
from .background.background_compile import CompileJob
from .background.respecialize_policy import DistantShape, RespecializePolicy, Sizes, distance
from .repeat_run_fast_path import RepeatRun

KEPT = 8
"""Executables of one segment: where it has no template, one for each set of sizes."""


@dataclass(eq=False)
class SizedProgram:
    """A program for some sizes. steady: how runs like the last one go, once that is known. notes: which sizes, and what
    others the plan serves. handings: what its trips hand on as the body of a loop (bodies.py)."""

    program: Program
    steady: RepeatRun | None = None
    notes: tuple[str, ...] = ()
    handings: dict[Any, Any] = field(default_factory=dict)


@dataclass(eq=False)
class Compiled:
    """An Executable, and what its model has to know of it.

    notes: sentences on how it was compiled; lasting: those that are true of what takes its place as well.
    may_overflow: halves may not hold the values, so that outputs must be looked at; is_asked: they were infinite,
    and in float32, too. is_proven: outputs of a run were looked at; before that none stays on the device. sizes:
    those of the executable as it was made; template: gives its program for others. job: makes what will take its
    place. moving: runs for sizes that change each time. is_replaced: whether that is there. when_in_place: what is
    left to be done once runs go through it, such as keeping its plan. `at` is thread-safe.
    """

    executable: Executable
    notes: tuple[str, ...] = ()
    lasting: tuple[str, ...] = ()
    may_overflow: bool = False
    is_asked: bool = False
    is_proven: bool = False
    job: CompileJob | None = None
    is_replaced: bool = False
    sizes: Sizes = ()
    template: Template | None = None
    when_in_place: Callable[[], None] | None = None
    dynamic: list[DynamicShapeRuns] = field(default_factory=list)
    _made: OrderedDict[Sizes, SizedProgram] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._made[self.sizes] = SizedProgram(self.executable.program, notes=self._describe(self.sizes))

    @property
    def made_for(self) -> Sizes:
        """The sizes for which its kernels were chosen."""
        return self.sizes if self.template is None else self.template.sizes

    def _describe(self, sizes: Sizes) -> tuple[str, ...]:
        """Sentences on the sizes of a run, and on what holds some of them to one value."""
        if self.template is None:
            return ()
        names = self.template.names
        came = ", ".join(f"s{i}={size} ({name})" for i, (name, size) in enumerate(zip(names, sizes, strict=True)))
        conditions = f"{len(self.template.guards)} conditions hold"
        fixed = [f"sizes: {g.text}, by {g.node or 'the plan'} ({g.where})" for g in self.template.guards if g.fixes]
        made_for = ", ".join(f"s{i}={size}" for i, size in enumerate(self.template.sizes))
        own = "" if sizes == self.template.sizes else f"was made for {made_for}, and "
        return (f"sizes: {came}; this plan {own}serves others for which {conditions}", *fixed)

    @property
    def sizes_kept(self) -> int:
        """How many sizes there are programs of."""
        with self._lock:
            return len(self._made)

    def succeed(self, old: Compiled) -> None:
        """Take what is known of `old`, in whose place it comes."""
        self.lasting = old.lasting
        if old.is_asked:
            self.may_overflow, self.is_asked = False, True

    def replace(self) -> None:
        """Something else has taken its place."""
        self.is_replaced = True
        with self._lock:
            for at in self._made.values():
                if at.steady is not None:
                    at.steady.is_current = False

    def leave(self, made_for: Sizes) -> None:
        """Runs of sizes nearer to `made_for` go through something else from now on."""
        with self._lock:
            for sizes, at in self._made.items():
                if at.steady is not None and distance(made_for, sizes) < distance(self.made_for, sizes):
                    at.steady.is_current = False
                    at.steady = None

    def at(self, sizes: Sizes) -> SizedProgram | None:
        """The program for `sizes`, which the executable may be resized to; None if it serves others only."""
        with self._lock:
            found = self._made.get(sizes)
            if found is not None:
                self._made.move_to_end(sizes)
                return found
        if self.template is None:
            return None
        with background_planning():
            program = self.template.at(sizes)
        if program is None:
            return None
        with self._lock:
            found = self._made.setdefault(sizes, SizedProgram(program, notes=self._describe(sizes)))
            if len(self._made) > SIZES_KEPT:
                self._made.popitem(last=False)
        return found


class ExecutableCache:
    """Compiled programs by what they were compiled from - a segment, which is a part of a model, or a variant of a
    bundle - and the sizes that they serve. They live as long as that, or until `clear`. Thread-safe.

    waits, waited_s: how often callers waited for another thread that compiled the same, and how long in all. nearer:
    how many were added that were made for sizes nearer to those that come.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.waits = 0
        self.waited_s = 0.0
        self._kept: weakref.WeakKeyDictionary[Hashable, list[Compiled]] = weakref.WeakKeyDictionary()
        self._far: weakref.WeakKeyDictionary[Hashable, RespecializePolicy] = weakref.WeakKeyDictionary()
        self.nearer = 0
        self._making: weakref.WeakKeyDictionary[Hashable, threading.RLock] = weakref.WeakKeyDictionary()

    def find(self, key: Hashable, sizes: Sizes = ()) -> tuple[Compiled, SizedProgram] | None:
        """What was compiled for `key` and serves `sizes`, with the program for them: of several the one that was made
        for the nearest sizes, and so what was tuned for these."""
        with self._lock:
            kept = list(self._kept.get(key, ()))
        if len(kept) > 1:
            kept.sort(key=lambda c: distance(c.made_for, sizes))
        for compiled in kept:
            at = compiled.at(sizes)
            if at is not None:
                return compiled, at
        return None

    def find_or_make(self, key: Hashable, sizes: Sizes, make: Callable[[], Compiled]) -> tuple[Compiled, SizedProgram]:
        """What was compiled for `key` and `sizes`, or what `make` gives now. Threads that want the same wait for the
        first of them; different keys are compiled side by side.
        """
        found = self.find(key, sizes)
        if found is not None:
            return found
        with self._lock:
            making = self._making.setdefault(key, threading.RLock())
        started = time.perf_counter()
        with making:
            found = self.find(key, sizes)
            if found is None:
                compiled = self.keep(key, make())
                at = compiled.at(sizes)
                assert at is not None, "made for other sizes"
                return compiled, at
        with self._lock:
            self.waits += 1
            self.waited_s += time.perf_counter() - started
        return found

    def keep(self, key: Hashable, compiled: Compiled, instead_of: Compiled | None = None) -> Compiled:
        """Keep `compiled` for `key`, before what is there, of which the oldest goes; gives it back."""
        with self._lock:
            others = [c for c in self._kept.get(key, ()) if c is not instead_of]
            self._kept[key] = [compiled, *others][:KEPT]
        return compiled

    def swap(self, key: Hashable, old: Compiled, new: Compiled) -> bool:
        """Keep `new` in the place of `old`, unless that has gone; runs of the key from the next on go through it."""
        with self._lock:
            kept = self._kept.get(key, [])
            if old not in kept:
                return False
            new.succeed(old)
            self._kept[key] = [new if c is old else c for c in kept]
        old.replace()
        return True

    def look_far(self, key: Hashable, compiled: Compiled, sizes: Sizes) -> DistantShape:
        """Whether `compiled`, by which `sizes` run, was made for sizes so far from these that another may be better."""
        if compiled.template is None or compiled.executable.tier == "generic":
            return DistantShape.NO
        with self._lock:
            return self._far.setdefault(key, RespecializePolicy()).record_run(sizes, compiled.made_for)

    def add_nearer(self, key: Hashable, compiled: Compiled) -> None:
        """Keep `compiled`, by which sizes run from now on that are nearer to its own than to the others'."""
        self.keep(key, compiled)
        with self._lock:
            self.nearer += 1
            others = [c for c in self._kept[key] if c is not compiled]
        for other in others:
            other.leave(compiled.made_for)

    def drop(self, key: Hashable, compiled: Compiled) -> None:
        """Forget `compiled`."""
        with self._lock:
            self._kept[key] = [c for c in self._kept.get(key, ()) if c is not compiled]
        compiled.replace()

    def has(self, key: Hashable, compiled: Compiled) -> bool:
        """Whether runs of `key` may go through `compiled`."""
        with self._lock:
            return compiled in self._kept.get(key, ())

    @property
    def all(self) -> list[Compiled]:
        """All that is kept."""
        with self._lock:
            return [c for kept in self._kept.values() for c in kept]

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._kept = weakref.WeakKeyDictionary()
            self._far = weakref.WeakKeyDictionary()

    def __len__(self) -> int:
        with self._lock:
            return sum(map(len, self._kept.values()))
