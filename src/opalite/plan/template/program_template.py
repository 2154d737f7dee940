"""Template: a Program for all sizes that satisfy its guards, made of a graph with symbolic sizes.

A template holds a Program in which numbers that depend on sizes are expressions (`Term`). `at(sizes)` evaluates all
terms in one compiled function, chooses work-groups and lays out the arena, in milliseconds and without planning.

    template = planned.template                # template.names: of the sizes, such as ('batch', 'height')
    program = template.at((4, 640))            # None if guards fail; these are `template.failing((4, 640))`

Programs of one template have the same steps in number, order and kind, the same sources, weights and host slots, and
the same number of slots. `at` reuses objects: a step, slot or argument equal to that of the previous program is the
same object, so that callers compare by `is`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, fields, replace
from functools import cached_property
from operator import itemgetter
from typing import Any, TypeAlias

from ...ir.device.default_workgroups import size_grid
from ...ir.device.device_info import DeviceInfo
from ...ir.symbols import Guard, Numbers, compile_numbers
from ...lazy_dataclass import dataclass
from ..memory.arena_planner import Replacer
from ..memory.liveness import Lifetime, arena_requests, fill_slots
from ..program import LaunchStep, LazyList, Program, Slot
from .shape_tensors import ShapeTensors
from .symbolic_numbers import SymbolicRecord, TableTerms, Term, filler, texts_in

_GROUPS_KEPT = 4096  # default work-groups in the cache, by grid

Values: TypeAlias = tuple[Any, ...]
"""Values of a template's terms at some sizes."""


@dataclass(eq=False)
class Template:
    """A Program with expressions in place of numbers. Plain data, with caches computed on use.

    names: of the sizes, in the model. sizes: of tracing, for which it holds. guards: conditions on other sizes.
    program: without slots; grids are not rounded up to work-groups, and launches with an open work-group have none.
    lifetimes: of its slots. tables: small contents of slots that depend on sizes. order: of slots, in which they are
    placed in the arena. device: for work-groups and alignment. given: shape tensors, further inputs of the program.

    `at` is thread-safe. `program.weights` is shared by all programs, and may be emptied; each program adds its tables.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    guards: tuple[Guard, ...]
    program: Program
    lifetimes: tuple[Lifetime, ...]
    tables: dict[int, TableTerms | SymbolicRecord]
    order: tuple[int, ...]
    align: int
    device: DeviceInfo = field(repr=False)
    given: ShapeTensors | None = None

    def at(self, sizes: Sequence[int]) -> Program | None:
        """The Program for `sizes`, one for each of `names`; None if a guard fails."""
        values = self._values(sizes)
        return None if values is None else self._instance.make(values, sizes)

    def holds(self, sizes: Sequence[int]) -> bool:
        """Whether there is a Program for `sizes`."""
        return self._values(sizes) is not None

    def failing(self, sizes: Sequence[int]) -> list[Guard]:
        """The guards that fail for `sizes`."""
        return [g for g in self.guards if not self._guard_holds(g, sizes)]

    def _guard_holds(self, guard: Guard, sizes: Sequence[int]) -> bool:
        try:
            return compile_numbers(len(self.names), [guard.text], ())(*sizes) is not None
        except (ArithmeticError, ValueError):
            return False

    def compile(self) -> None:
        """Compile the terms in advance; ValueError for an invalid expression, such as one in a damaged file."""
        _ = self._instance

    def _values(self, sizes: Sequence[int]) -> tuple[Any, ...] | None:
        if len(sizes) != len(self.names):
            raise ValueError(f"{len(self.names)} sizes ({', '.join(self.names)}) are expected, got {len(sizes)}")
        numbers = self._instance.numbers
        try:
            return numbers(*sizes)
        except (ArithmeticError, ValueError):  # a guard or number that is undefined for these sizes
            return None

    @cached_property
    def _instance(self) -> _Instances:
        return _Instances(self)


class _Instances:
    """Factory of a template's Programs: its terms numbered and compiled.

    Parts are values that recur in steps (arguments, grids with work-groups); each is computed once for a choice of
    sizes.
    """

    def __init__(self, template: Template) -> None:
        self._template = template
        self._numbered: dict[str, int] = {}
        program = template.program
        self._device = template.device
        self._sized = SizedGrids(template.device)
        self._part_numbers: dict[Any, int] = {}
        self._parts: list[_Kept] = []
        self._steps = [self._step(step) for step in program.steps]
        self._inputs = [self._kept(port) for port in program.inputs]
        self._outputs = [self._kept(port) for port in program.outputs]
        self._reserved = [self._kept(port) for port in program.reserved]
        self._lives = [self._kept(m) for m in template.lifetimes]
        self._tables = [(n, self._kept(t)) for n, t in template.tables.items()]
        self._slots: list[Slot] = []
        self._placing = Replacer(arena_requests(template.lifetimes), template.order)
        guards = list(dict.fromkeys(g.text for g in template.guards))
        self.numbers = compile_numbers(len(template.names), guards, list(self._numbered))

    def _number(self, text: str) -> int:
        return self._numbered.setdefault(text, len(self._numbered))

    def _terms(self, x: Any) -> list[int]:
        return [self._number(t) for t in dict.fromkeys(texts_in(x))]

    def _kept(self, x: Any) -> Callable[[Values], Any]:
        """values -> `x` with numbers for its terms; the previous result if none of them has changed."""
        terms = self._terms(x)
        return _Kept(terms, self._made(x)) if terms else lambda values: x

    def _made(self, x: Any) -> Callable[[Values], Any]:
        """values -> `x` with numbers for its terms."""
        return filler(x, self._number)

    def _part(self, key: Any, terms: Sequence[int], make: Callable[[Values], Any]) -> int:
        """The number of a part. key: equal for equal parts."""
        found = self._part_numbers.get(key)
        if found is None:
            found = self._part_numbers[key] = len(self._parts)
            self._parts.append(_Kept(terms, make))
        return found

    def _open_arg(self, arg: Any) -> int:
        """The part number of an argument with terms; equal arguments of several launches share a part."""
        found = self._part_numbers.get(arg)
        return self._part(arg, self._terms(arg), self._made(arg)) if found is None else found

    def _step(self, step: Any) -> Callable[[Values], Any]:
        """values (of terms, then of parts) -> `step` with numbers for its terms."""
        if not isinstance(step, LaunchStep):
            return self._kept(step)
        terms = self._terms(step)
        if not terms:
            grid, group = size_grid(step.grid, step.group, self._device)
            sized = replace(step, grid=grid, group=group)
            return lambda values: sized
        args = list(step.args)
        open_args = [(i, self._open_arg(a)) for i, a in enumerate(args) if texts_in(a)]
        shape = self._shape_part(step)
        given = {f.name: getattr(step, f.name) for f in fields(step)}
        costs = [(name, self._number(x.text)) for name, x in given.items() if isinstance(x, Term)]

        def made(values: Values) -> LaunchStep:
            parts = values[-1]
            filled = args.copy()
            for i, part in open_args:
                filled[i] = parts[part]
            # Bypasses __init__, which takes three times as long for a frozen dataclass.
            launch = object.__new__(LaunchStep)
            own = launch.__dict__
            own.update(given)
            own["args"] = tuple(filled)
            own["grid"], own["group"] = parts[shape]
            for name, number in costs:
                own[name] = values[number]
            return launch

        return _Kept(terms, made)

    def _shape_part(self, step: LaunchStep) -> int:
        """The part of a launch's grid and work-group."""
        known = self._part_numbers.get((step.grid, step.group))
        if known is not None:
            return known
        grid = self._made(step.grid) if texts_in(step.grid) else None
        group = self._made(step.group) if texts_in(step.group) else None

        def sized(values: Values) -> Any:
            own = step.grid if grid is None else grid(values), step.group if group is None else group(values)
            return self._sized.at(own)

        return self._part((step.grid, step.group), self._terms((step.grid, step.group)), sized)

    @cached_property
    def _report_numbers(self) -> tuple[list[str], Numbers]:
        """The terms of reports, compiled on use."""
        texts = list(dict.fromkeys(texts_in(list(self._template.program.placement))))
        return texts, compile_numbers(len(self._template.names), (), texts)

    def _reports(self, sizes: Sequence[int]) -> list[Any]:
        texts, numbers = self._report_numbers
        values = dict(zip(texts, numbers(*sizes) or (), strict=True))
        return [filler(r, str)(values) for r in self._template.program.placement]

    def make(self, values: Values, sizes: Sequence[int]) -> Program:
        """The Program for `sizes`, at which the terms have `values`."""
        template = self._template
        base = template.program
        lifetimes = [m(values) for m in self._lives]
        plan, least = self._placing.place({i: lifetimes[i].nbytes for i in template.order}, template.align)
        values = (*values, [part(values) for part in self._parts])
        program = Program(
            base.name,
            [port(values) for port in self._inputs],
            [port(values) for port in self._outputs],
            weights={**base.weights, **{n: table(values) for n, table in self._tables}},
            host_consts=base.host_consts,
            host_slots=base.host_slots,
            sources=base.sources,
            steps=[step(values) for step in self._steps],
            placement=LazyList(lambda: self._reports(sizes)),
            stores_halves=base.stores_halves,
            weight_keys=base.weight_keys,
            tuning=base.tuning,
            reserved=[port(values) for port in self._reserved],
        )
        fill_slots(program, lifetimes, plan, {plan.strategy: plan.total}, least, self._slots)
        self._slots = program.slots
        return program


class SizedGrids:
    """Grids rounded up to work-groups for a device, cached."""

    def __init__(self, device: DeviceInfo) -> None:
        self._device = device
        self._known: dict[Any, Any] = {}

    def at(self, own: tuple[Any, Any]) -> Any:
        """(grid, work-group) of a launch with its `own` grid and work-group, as `size_grid`."""
        found = self._known.get(own)
        if found is None:
            if len(self._known) >= _GROUPS_KEPT:
                self._known.clear()
            found = self._known[own] = size_grid(*own, self._device)
        return found


class _Kept:
    """A function of the values of `terms` that caches its last result."""

    __slots__ = ("_last", "_make", "_values_of")

    def __init__(self, terms: Sequence[int], make: Callable[[Values], Any]) -> None:
        self._values_of: Callable[[Values], Any] = itemgetter(*terms) if terms else lambda values: ()
        self._make = make
        self._last: tuple[Any, Any] = (None, None)  # set at once, for threads

    def __call__(self, values: Values) -> Any:
        key = self._values_of(values)
        last, made = self._last
        if key != last:
            made = self._make(values)
            self._last = key, made
        return made
