"""LoopIterations: runs a program as the body of a loop, with loop-carried values in memory that host and device share.

If the calling thread executes all launches (pocl/megakernel/host_thread_loop.py), one call makes all iterations.
Between two iterations it copies loop-carried and collected values, by a list of copies.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from ....lazy_dataclass import dataclass
from ....plan.megakernel_source import HOST_COPY
from ..run_trace import RunTrace

if TYPE_CHECKING:
    from ..strategies.host_fast_path import HostFastPath

Array = np.ndarray[Any, Any]
T = TypeVar("T")
_TO, _FROM = HOST_COPY.index("TO"), HOST_COPY.index("FROM")


@dataclass(frozen=True)
class FromOutput:
    """Output number `index` of the program."""

    index: int


@dataclass(frozen=True)
class FromInput:
    """The value that the iteration had as input number `index` of the program."""

    index: int


Source = FromOutput | FromInput


@dataclass(frozen=True)
class LoopCarryPlan:
    """The values that are copied between two iterations, by numbers of the program's inputs and outputs.

    counter: the input that is the number of the iteration; None if there is none. states: loop-carried values, each
    with the input of the next iteration, None if that reads it nowhere. rows: values that are collected from each
    iteration. condition: the output that decides whether there is another iteration; None if there always is. scanned:
    inputs that are another row of an array in each iteration.
    """

    counter: int | None
    states: tuple[tuple[Source, int | None], ...]
    rows: tuple[Source, ...]
    condition: int | None
    scanned: tuple[int, ...]


@dataclass(frozen=True)
class IterationResult:
    """The result of some iterations.

    made: number of iterations. continues: whether the condition for another one is true. states: after the last one.
    rows: collected, along a new first axis.
    """

    made: int
    continues: bool
    states: list[Array]
    rows: list[Array]


class Iterations(Protocol):
    """The iterations of one plan. how: a phrase. iteration_s: seconds of an iteration, measured last; 0 before that."""

    @property
    def how(self) -> str: ...

    @property
    def iteration_s(self) -> float: ...

    def run(
        self, feeds: Sequence[Any], first: int, most: int, scanned: Sequence[Array] = ()
    ) -> tuple[IterationResult, RunTrace]:
        """Make at least one and at most `most` iterations, from number `first` on.

        feeds: of iteration `first`, by number of the program's input. scanned: rows from `first` on, for each scanned
        input.
        """


class LoopIterations:
    """The iterations of one plan by one HostFastPath.

    iteration_s: seconds of an iteration, measured last; 0 before that.
    """

    how = "in one call, by the thread that calls"

    def __init__(
        self, repeat: HostFastPath, plan: LoopCarryPlan, inputs: Sequence[Sequence[Array]], outputs: Sequence[Array]
    ):
        """inputs, outputs: buffers of the program's inputs and outputs."""
        self._repeat, self._plan, self._inputs = repeat, plan, inputs
        self.iteration_s = 0.0
        held: dict[int, Array] = {}  # inputs of an iteration that are read after the next one's are written
        after: list[tuple[int, ...]] = []
        between: list[tuple[int, ...]] = []

        def memory_of(source: Source) -> Array:
            return outputs[source.index] if isinstance(source, FromOutput) else inputs[source.index][0]

        for source, _ in plan.states:
            if isinstance(source, FromInput) and source.index not in held:
                taken = memory_of(source)
                held[source.index] = np.empty_like(taken)
                after.append(_move(held[source.index], taken))
        self._states = [held[s.index] if isinstance(s, FromInput) else memory_of(s) for s, _ in plan.states]
        self._rows = [memory_of(source) for source in plan.rows]
        self._first_row = len(after)
        after += [_move(memory, memory, to_step=memory.nbytes) for memory in self._rows]
        for (_, target), memory in zip(plan.states, self._states, strict=True):
            if target is not None:
                between += [_move(place, memory, is_between=True) for place in inputs[target]]
        self._running: list[tuple[int, Array, int]] = []  # number of a move, its memory, and which array it reads
        numbers = [*(() if plan.counter is None else (plan.counter,)), *plan.scanned]
        for which, number in enumerate(numbers):
            for place in inputs[number]:
                self._running.append((len(after) + len(between), place, which))
                between.append(_move(place, place, from_step=place.nbytes, is_between=True))
        self._copies = np.array([*after, *between], np.uint64).reshape(-1, len(HOST_COPY))
        self._condition = None if plan.condition is None else outputs[plan.condition].reshape(-1).view(np.uint8)
        self._flag = 0 if self._condition is None else _address(self._condition)

    def run(
        self, feeds: Sequence[Any], first: int, most: int, scanned: Sequence[Array] = ()
    ) -> tuple[IterationResult, RunTrace]:
        """See Iterations.run."""
        clock = time.perf_counter
        started = clock()
        copies = self._copies.copy()
        columns = [np.empty((most, *memory.shape), memory.dtype) for memory in self._rows]
        for k, column in enumerate(columns, self._first_row):
            copies[k, _TO] = _address(column)
        for places, value in zip(self._inputs, feeds, strict=True):
            for place in places:
                place[...] = value
        sources: list[Any] = [] if self._plan.counter is None else [np.arange(first, first + most)]
        sources += scanned
        kept = []
        for k, place, which in self._running:
            rows = np.ascontiguousarray(sources[which], place.dtype)
            kept.append(rows)
            copies[k, _FROM] = _address(rows) + place.nbytes  # the first iteration has its own
        uploaded = clock()
        self._repeat.loop.set_table(self._repeat.rows)
        made = self._repeat.loop.run_iterations(most, copies, self._flag)
        computed = clock()
        self.iteration_s = (computed - uploaded) / made
        continues = self._condition is None or bool(self._condition[0])
        states = [memory.copy() for memory in self._states]
        if made < most:
            columns = [column[:made].copy() for column in columns]
        trace = self._repeat.trace_of_iterations(made)
        trace.upload_s, trace.compute_s = uploaded - started, computed - uploaded
        trace.download_s = clock() - computed
        return IterationResult(made, continues, states, columns), trace


CHANGES = "a loop-carried value changes its shape or type"
HOSTED = "the body has host operators"


def iterations_of(repeat: HostFastPath, plan: LoopCarryPlan) -> LoopIterations | str:
    """A runner of the iterations of `plan`, or why there is none."""
    program = repeat.instance.program
    inputs = [[a for host, a in repeat.inputs if host == port.host] for port in program.inputs]
    by_host = dict(repeat.outputs)
    outputs = [by_host.get(port.host) for port in program.outputs]
    if not carries_fit(plan, inputs, outputs, lambda array: (array.dtype, array.shape)):
        return CHANGES
    return LoopIterations(repeat, plan, inputs, [np.empty(0) if a is None else a for a in outputs])


def carries_fit(
    plan: LoopCarryPlan,
    inputs: Sequence[Sequence[T]],
    outputs: Sequence[T | None],
    kind: Callable[[T], tuple[np.dtype[Any], tuple[int, ...]]],
) -> bool:
    """Whether loop-carried values keep type and shape, and the condition is one byte.

    inputs, outputs: where the program's values are; an input may have several places or none. kind: type and shape.
    """
    for source, target in loop_carried(plan):
        value = outputs[source.index] if isinstance(source, FromOutput) else next(iter(inputs[source.index]), None)
        if value is None:
            return False
        if target is not None and any(kind(place) != kind(value) for place in inputs[target]):
            return False
    if plan.condition is None:
        return True
    flag = outputs[plan.condition]
    if flag is None:
        return False
    dtype, shape = kind(flag)
    return math.prod(shape) * dtype.itemsize == 1


def loop_carried(plan: LoopCarryPlan) -> Iterator[tuple[Source, int | None]]:
    """All values of an iteration that are copied, each with the input of the next iteration, if any."""
    yield from plan.states
    for source in plan.rows:
        yield source, None


def _address(array: Array) -> int:
    found: int = array.__array_interface__["data"][0]  # a fifth of what .ctypes takes
    return found


def _move(
    to: Array, from_: Array, *, to_step: int = 0, from_step: int = 0, is_between: bool = False
) -> tuple[int, ...]:
    """A HOST_COPY of plan/megakernel_source.py."""
    return _address(to), _address(from_), from_.nbytes, to_step, from_step, int(is_between)
