"""ExecutableCache: the compiled programs of a model, by the segment or bundled program that they were compiled from."""

from __future__ import annotations

import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import field
from typing import Any

from ...cl.programs.background_throttle import background_planning
from ...lazy_dataclass import dataclass
from ...plan.program import Program
from ...plan.template.program_template import Template
from ..execute.dynamic_shape_runs import DynamicShapeRuns
from ..execute.executable import SIZES_KEPT, Executable
from .background.background_compile import CompileJob
from .background.respecialize_policy import DistantShape, RespecializePolicy, Sizes, distance
from .route import Contents, Route, WholeProgram, types_key

KEPT = 8
"""Executables of one key: without a template, one for each set of sizes. Likewise routes of one set of sizes."""


@dataclass(eq=False)
class SizedProgram:
    """A program for some sizes.

    routes: of runs at these sizes, by what selects them. notes: the sizes, and the others that the plan serves.
    carry_plans: loop-carried values of its iterations as the body of a loop (loop_runner.py).
    """

    program: Program
    routes: OrderedDict[Hashable, Route] = field(default_factory=OrderedDict)
    notes: tuple[str, ...] = ()
    carry_plans: dict[Any, Any] = field(default_factory=dict)

    def drop_routes(self) -> None:
        """Have later runs dispatched by the model."""
        for route in self.routes.values():
            route.is_current = False
        self.routes.clear()


@dataclass(eq=False)
class Compiled:
    """An Executable with its notes, flags and programs by size. `at` is thread-safe.

    notes: sentences on how it was compiled. inherited_notes: sentences that hold for its replacement too.
    may_overflow: half storage may overflow, so each run's outputs are checked. overflow_is_own: outputs were infinite
    in float32 too. is_proven: outputs of a run were checked; before that none stays on the device. job: makes its
    replacement. is_replaced: the replacement is installed. sizes: those that it was compiled at. template: gives its
    programs for other sizes. dynamic: runs with sizes that change in each run.
    """

    executable: Executable
    notes: tuple[str, ...] = ()
    inherited_notes: tuple[str, ...] = ()
    may_overflow: bool = False
    overflow_is_own: bool = False
    is_proven: bool = False
    job: CompileJob | None = None
    is_replaced: bool = False
    sizes: Sizes = ()
    template: Template | None = None
    dynamic: list[DynamicShapeRuns] = field(default_factory=list)
    _made: OrderedDict[Sizes, SizedProgram] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._made[self.sizes] = SizedProgram(self.executable.program, notes=self._describe(self.sizes))

    @property
    def made_for(self) -> Sizes:
        """The sizes that its kernels were chosen for."""
        return self.sizes if self.template is None else self.template.sizes

    def _describe(self, sizes: Sizes) -> tuple[str, ...]:
        """Sentences on the sizes of a run, and on the guards that fix some of them."""
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
        """Number of sizes with a program."""
        with self._lock:
            return len(self._made)

    def inherit(self, old: Compiled) -> None:
        """Copy from `old`, which it replaces, what holds for both."""
        self.inherited_notes = old.inherited_notes
        if old.overflow_is_own:
            self.may_overflow, self.overflow_is_own = False, True

    def mark_replaced(self) -> None:
        """Note that another executable has replaced it."""
        with self._lock:
            self.is_replaced = True
            for at in self._made.values():
                at.drop_routes()

    def drop_routes_near(self, made_for: Sizes) -> None:
        """Drop the routes of sizes nearer to `made_for` than to its own: another executable serves them now."""
        with self._lock:
            for sizes, at in self._made.items():
                if distance(made_for, sizes) < distance(self.made_for, sizes):
                    at.drop_routes()

    def route_at(
        self,
        at: SizedProgram,
        feeds: Mapping[str, Any],
        contents: Contents | None,
        whole: Callable[[], WholeProgram | None],
    ) -> Route | None:
        """The route of runs on such `feeds` by `at`; None if each run must be dispatched by the model.

        contents: of the feeds that selected the program. whole: gives the run as one program, None if it is more.
        """
        # Generic programs leave the run lock to others.
        is_ready = self.is_proven or not self.may_overflow
        if not is_ready or self.executable.tier == "generic" or contents is None or types_key(feeds) is None:
            return None
        with self._lock:
            if self.is_replaced:
                return None
            key = types_key(feeds), contents
            found = at.routes.get(key)
            if found is not None and not found.is_current:
                found = None
            if found is None and (made := whole()) is not None:
                found = at.routes[key] = Route(
                    self.executable, at.program, made, feeds, contents, may_overflow=self.may_overflow
                )
                if len(at.routes) > KEPT:
                    at.routes.popitem(last=False)[1].is_current = False
            return found

    def at(self, sizes: Sizes) -> SizedProgram | None:
        """The program for `sizes`, which the executable can be resized to; None if no program of it serves them."""
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
    """Compiled programs by key - the segment or bundle variant that they were compiled from - and by size.

    They live as long as the key, or until `clear`. Thread-safe. waits, waited_s: number and seconds of waits for
    another thread that compiled the same. respecialized: number of plans added for recurring sizes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.waits = 0
        self.waited_s = 0.0
        self._kept: weakref.WeakKeyDictionary[Hashable, list[Compiled]] = weakref.WeakKeyDictionary()
        self._policies: weakref.WeakKeyDictionary[Hashable, RespecializePolicy] = weakref.WeakKeyDictionary()
        self.respecialized = 0
        self._compile_locks: weakref.WeakKeyDictionary[Hashable, threading.RLock] = weakref.WeakKeyDictionary()

    def find(self, key: Hashable, sizes: Sizes = ()) -> tuple[Compiled, SizedProgram] | None:
        """The executable for `key` and `sizes`, with its program; of several the one made for the nearest sizes."""
        with self._lock:
            kept = list(self._kept.get(key, ()))
        if len(kept) > 1:
            kept.sort(key=lambda c: distance(c.made_for, sizes))
        for compiled in kept:
            at = compiled.at(sizes)
            if at is not None:
                return compiled, at
        return None

    def nearest(self, key: Hashable, sizes: Sizes) -> Compiled | None:
        """The executable for `key` that was made for the nearest sizes, whether it serves these or not."""
        with self._lock:
            kept = self._kept.get(key, ())
            return kept[0] if len(kept) == 1 else min(kept, key=lambda c: distance(c.made_for, sizes), default=None)

    def find_or_make(self, key: Hashable, sizes: Sizes, make: Callable[[], Compiled]) -> tuple[Compiled, SizedProgram]:
        """The executable for `key` and `sizes`, made by `make` if there is none.

        Threads that want the same key wait for the first of them; different keys compile in parallel.
        """
        found = self.find(key, sizes)
        if found is not None:
            return found
        with self._lock:
            making = self._compile_locks.setdefault(key, threading.RLock())
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
        """Keep `compiled` for `key` as the newest, in place of `instead_of`; the oldest is evicted. Returns it."""
        with self._lock:
            others = [c for c in self._kept.get(key, ()) if c is not instead_of]
            self._kept[key] = [compiled, *others][:KEPT]
        return compiled

    def swap(self, key: Hashable, old: Compiled, new: Compiled) -> bool:
        """Replace `old` by `new` for runs from the next on; False if `old` was evicted."""
        with self._lock:
            kept = self._kept.get(key, [])
            if old not in kept:
                return False
            new.inherit(old)
            self._kept[key] = [new if c is old else c for c in kept]
        old.mark_replaced()
        return True

    def record_sizes(self, key: Hashable, compiled: Compiled, sizes: Sizes) -> DistantShape:
        """Count a run of `sizes` by `compiled`; whether they recur so far from its own that a new plan is due."""
        if compiled.template is None or compiled.executable.tier == "generic":
            return DistantShape.NO
        with self._lock:
            return self._policies.setdefault(key, RespecializePolicy()).record_run(sizes, compiled.made_for)

    def looks_for_plan(self, key: Hashable, compiled: Compiled, sizes: Sizes) -> bool:
        """Whether a run of `sizes` by `compiled` should be counted, because a plan for them may come to be due."""
        if compiled.template is None or compiled.executable.tier == "generic":
            return False
        with self._lock:
            return self._policies.setdefault(key, RespecializePolicy()).is_open(sizes, compiled.made_for)

    def add_respecialized(self, key: Hashable, compiled: Compiled) -> None:
        """Keep `compiled` for sizes that are nearer to its own than to the others'."""
        self.keep(key, compiled)
        with self._lock:
            self.respecialized += 1
            others = [c for c in self._kept[key] if c is not compiled]
        for other in others:
            other.drop_routes_near(compiled.made_for)

    def drop(self, key: Hashable, compiled: Compiled) -> None:
        """Evict `compiled`."""
        with self._lock:
            self._kept[key] = [c for c in self._kept.get(key, ()) if c is not compiled]
        compiled.mark_replaced()

    def has(self, key: Hashable, compiled: Compiled) -> bool:
        """Whether `compiled` is kept for `key`."""
        with self._lock:
            return compiled in self._kept.get(key, ())

    @property
    def all(self) -> list[Compiled]:
        """All executables with their records."""
        with self._lock:
            return [c for kept in self._kept.values() for c in kept]

    def clear(self) -> None:
        """Evict all."""
        with self._lock:
            self._kept = weakref.WeakKeyDictionary()
            self._policies = weakref.WeakKeyDictionary()

    def __len__(self) -> int:
        with self._lock:
            return sum(map(len, self._kept.values()))
