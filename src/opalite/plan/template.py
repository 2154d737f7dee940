"""Template: a Program for all sizes for which its guards hold, made of a graph whose sizes are symbols.

A template holds a Program in which numbers that depend on sizes are expressions (`Term`). `at(sizes)` evaluates them
all in one compiled function, chooses work-groups and lays the arena out: milliseconds, for nothing is planned anew.

    template = planned.template                # names: what the sizes are, such as ('batch', 'height')
    program = template.at((4, 640))            # None where a guard fails, which `template.failing((4, 640))` tells

Programs of one template have the same steps in number, order and kind, the same sources, weights, host slots and
slots in number. What is equal in the last program that `at` gave - a step, a slot, an argument - is the same object
in the next: who follows a program from size to size compares by `is`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import itemgetter
from typing import Any

import numpy as np

from ..ir.device import DeviceInfo
from ..ir.symbols import Guard, Numbers, compile_numbers
from ..ir.workgroups import size_grid
from .arena import Replacer
from .lazy import LazyList
from .lifetimes import Lifetime, arena_requests, fill_slots
from .program import LaunchStep, Program, ScalarArg, Slot
from .sized_values import SizedValues
from .terms import MadeTerms, TableTerms, Term, TypedTerm, fill, texts_in

_GROUPS_KEPT = 4096  # untuned work-groups, by grid


@dataclass(eq=False)
class Template:
    """A Program with expressions in the places of numbers. Plain data, but for what is derived when it is first used.

    names: what the sizes are, as the model calls them. sizes: those it was traced with, for which it holds. guards:
    what has to be true of others. program: without slots; grids are not rounded up to work-groups, and launches whose
    work-group is open have none. lifetimes: of its slots. tables: small contents of slots that depend on sizes. order:
    of slots, in which they are placed in the arena. device: whose work-groups and alignment count. given: inputs of the
    program that follow from the sizes alone.

    `at` may be called by several threads. `program.weights` is what programs share, and may be emptied; those of a
    program add its tables.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    guards: tuple[Guard, ...]
    program: Program
    lifetimes: tuple[Lifetime, ...]
    tables: dict[int, TableTerms | MadeTerms]
    order: tuple[int, ...]
    align: int
    device: DeviceInfo = field(repr=False)
    given: SizedValues | None = None

    def at(self, sizes: Sequence[int]) -> Program | None:
        """The Program for `sizes`, one for each of `names`; None where a guard fails."""
        values = self._values(sizes)
        return None if values is None else self._instance.make(values, sizes)

    def holds(self, sizes: Sequence[int]) -> bool:
        """Whether there is a Program for `sizes`."""
        return self._values(sizes) is not None

    def failing(self, sizes: Sequence[int]) -> list[Guard]:
        """The guards that fail for `sizes`: why there is no Program."""
        return [g for g in self.guards if not self._guard_holds(g, sizes)]

    def _guard_holds(self, guard: Guard, sizes: Sequence[int]) -> bool:
        try:
            return compile_numbers(len(self.names), [guard.text], ())(*sizes) is not None
        except (ArithmeticError, ValueError):
            return False

    def compile(self) -> None:
        """Make ready what `at` needs; ValueError if a text, of a file perhaps, is no expression over sizes."""
        _ = self._instance

    def _values(self, sizes: Sequence[int]) -> tuple[Any, ...] | None:
        if len(sizes) != len(self.names):
            raise ValueError(f"{len(self.names)} sizes ({', '.join(self.names)}) are expected, got {len(sizes)}")
        numbers = self._instance.numbers
        try:
            return numbers(*sizes)
        except (ArithmeticError, ValueError):  # a guard or a number that these sizes have none of
            return None

    @cached_property
    def _instance(self) -> _Instances:
        return _Instances(self)


class _Instances:
    """What makes Programs of a template: its terms numbered and compiled."""

    def __init__(self, template: Template) -> None:
        self._template = template
        self._numbered: dict[str, int] = {}
        program = template.program
        self._device = template.device
        self._steps = [self._step(step) for step in program.steps]
        self._inputs = [self._kept(port) for port in program.inputs]
        self._outputs = [self._kept(port) for port in program.outputs]
        self._lives = [self._kept(m) for m in template.lifetimes]
        self._tables = [(n, self._kept(t)) for n, t in template.tables.items()]
        self._slots: list[Slot] = []
        self._groups: dict[Any, Any] = {}
        self._placing = Replacer(arena_requests(template.lifetimes), template.order)
        self.numbers = compile_numbers(
            len(template.names), list(dict.fromkeys(g.text for g in template.guards)), list(self._numbered)
        )

    def _number(self, text: str) -> int:
        return self._numbered.setdefault(text, len(self._numbered))

    def _kept(self, x: Any) -> Callable[[tuple[Any, ...]], Any]:
        """values -> `x` with numbers for its terms; the last one again where none of them has changed."""
        terms = [self._number(t) for t in dict.fromkeys(texts_in(x))]
        if not terms:
            return lambda values: x
        return _Kept(terms, self._made(x))

    def _made(self, x: Any) -> Callable[[tuple[Any, ...]], Any]:
        """values -> `x` with numbers for its terms."""
        match x:
            case Term(text):
                return itemgetter(self._number(text))
            case tuple() if all(isinstance(i, int | Term) for i in x):
                given = [self._made(i) if isinstance(i, Term) else None for i in x]
                return lambda values: tuple(
                    [i if get is None else get(values) for i, get in zip(x, given, strict=True)]
                )
            case Lifetime(nbytes=Term() as size, image=None, within=None):
                nbytes = self._made(size)
                return lambda values: Lifetime(nbytes(values), x.first, x.last, x.storage, x.label, None, x.dtype, None)
            case ScalarArg(TypedTerm(text, name)):
                number, dtype = self._number(text), np.dtype(name).type
                return lambda values: ScalarArg(dtype(values[number]))
        return lambda values: self._filled(x, values)

    def _filled(self, x: Any, values: tuple[Any, ...]) -> Any:
        return fill(x, lambda text: values[self._numbered[text]])

    def _step(self, step: Any) -> Callable[[tuple[Any, ...]], Any]:
        if not isinstance(step, LaunchStep):
            return self._kept(step)
        terms = [self._number(t) for t in dict.fromkeys(texts_in(step))]
        if not terms:
            grid, group = size_grid(step.grid, step.group, self._device)
            sized = replace(step, grid=grid, group=group)
            return lambda values: sized
        args = [self._kept(a) for a in step.args]
        raw, given = self._kept(step.grid), self._kept(step.group)
        flops, nbytes = self._kept(step.flops), self._kept(step.nbytes)

        def made(values: tuple[Any, ...]) -> LaunchStep:
            grid, group = self._sized(raw(values), given(values))
            return LaunchStep(
                step.source,
                step.entry,
                tuple([a(values) for a in args]),
                grid,
                group,
                step.node,
                step.kernel,
                flops(values),
                nbytes(values),
                step.open_group,
            )

        return _Kept(terms, made)

    def _sized(self, grid: Any, group: Any) -> Any:
        found = self._groups.get((grid, group))
        if found is None:
            if len(self._groups) >= _GROUPS_KEPT:
                self._groups.clear()
            found = self._groups[grid, group] = size_grid(grid, group, self._device)
        return found

    @cached_property
    def _report_numbers(self) -> tuple[list[str], Numbers]:
        """The terms of reports, which are seldom looked at."""
        texts = list(dict.fromkeys(texts_in(list(self._template.program.placement))))
        return texts, compile_numbers(len(self._template.names), (), texts)

    def _reports(self, sizes: Sequence[int]) -> list[Any]:
        texts, numbers = self._report_numbers
        values = dict(zip(texts, numbers(*sizes) or (), strict=True))
        return [fill(r, values.__getitem__) for r in self._template.program.placement]

    def make(self, values: tuple[Any, ...], sizes: Sequence[int]) -> Program:
        """The Program in which the terms have `values`, those for `sizes`."""
        template = self._template
        base = template.program
        lifetimes = [m(values) for m in self._lives]
        plan, least = self._placing.place(arena_requests(lifetimes), template.align)
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
        )
        fill_slots(program, lifetimes, plan, {plan.strategy: plan.total}, least)
        last = self._slots
        if last:
            program.slots = [b if a != b else a for a, b in zip(last, program.slots, strict=True)]
        self._slots = program.slots
        return program


class _Kept:
    """A function of the values of `terms`, whose last result is given again while they stay."""

    __slots__ = ("_last", "_make", "_values_of")

    def __init__(self, terms: Sequence[int], make: Callable[[tuple[Any, ...]], Any]) -> None:
        self._values_of = itemgetter(*terms)
        self._make = make
        self._last: tuple[Any, Any] = (None, None)  # set at once, for threads

    def __call__(self, values: tuple[Any, ...]) -> Any:
        key = self._values_of(values)
        last, made = self._last
        if key != last:
            made = self._make(values)
            self._last = key, made
        return made
