"""RepeatRun: a run whose inputs have the types of the last one's, where that one was a single program.

What the usual way decides anew each time - whether feeds fit, which segment they select, what it was compiled to - was
decided when the SteadyRun was made.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...plan.program import DownloadStep, HostStep, Program, ReferenceStep
from ..execute.executable import Executable
from ..execute.run_trace import RunTrace
from ..execute.strategies.time_slicing import DeviceShare

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Whole:
    """All of a run as one program.

    program: its inputs are the model's own, and those that are given. given: what follows from the sizes. finish: what
    the host makes of the arrays that the program gives to have the model's outputs in order; None where those are they.
    """

    program: Program
    finish: Callable[[list[Any]], list[Any]] | None = None
    given: Mapping[str, Array] = field(default_factory=dict)


class RepeatRun:
    """Runs of one Executable for inputs by name, in turn, as the Executable's are.

    program: the executable's for them. key: of the inputs it serves (`types_key`). is_current: whether the Executable
    is what such runs should go through.
    """

    def __init__(self, executable: Executable, program: Program, whole: Whole, feeds: Mapping[str, Array]) -> None:
        """program: the executable's for the sizes of `feeds`, which are those of the last run, all of them arrays."""
        self.executable, self.program = executable, program
        self._entered = executable.entered(program)
        self.key = types_key(feeds)
        self.is_current = True
        self._types = [(name, array.dtype, array.shape) for name, array in feeds.items()]
        self._texts = [name for name, array in feeds.items() if array.dtype.kind == "O"]
        read = [p.name for p in whole.program.inputs]
        self._read = None if read == list(feeds) else read  # None: all inputs, in their order
        self._given = whole.given
        self._finish = whole.finish
        self._sources = None if self._gives_all(whole.program) else self._find_sources(whole.program)

    def _gives_all(self, program: Program) -> bool:
        """Whether the executable's outputs are the program's, each made by a step: nobody else holds them."""
        own = self.program
        given = [p.host for p in program.outputs]
        return given == [p.host for p in own.outputs] and len(set(given)) == len(given) and _made(own).issuperset(given)

    def _find_sources(self, program: Program) -> list[tuple[Array | str | int, bool]]:
        """Where each output comes from: a constant, a feed's name or a number of the executable's outputs; and whether
        somebody else holds it, so that the caller gets a copy.
        """
        own = self.program
        computed = {p.host: i for i, p in enumerate(own.outputs)}
        fed = {p.host: p.name for p in program.inputs}
        made = _made(own)
        found: list[tuple[Array | str | int, bool]] = []
        seen: set[int] = set()
        for port in program.outputs:
            number = port.host
            source: Array | str | int = (
                computed[number] if number in computed else fed.get(number) or program.host_consts[number]
            )
            if isinstance(source, str):
                source = self._given.get(source, source)
            found.append((source, number not in made or number in seen))
            seen.add(number)
        return found

    def run(
        self, feeds: Mapping[str, Any], twin: Executable | None = None, room: DeviceShare | None = None
    ) -> tuple[list[Any], RunTrace] | None:
        """The model's outputs in order, and what the run did; None if something about the feeds is new.

        twin: of the executable, which runs in its place in what `room` it is given.
        """
        if len(feeds) != len(self._types):
            return None
        arrays = []
        for name, dtype, shape in self._types:
            array = feeds.get(name)
            if type(array) is not np.ndarray or array.dtype != dtype or array.shape != shape:
                return None
            arrays.append(array)
        for name in self._texts:
            if not all(type(v) is str for v in feeds[name].flat):
                return None
        if self._read is not None:
            given = self._given
            arrays = [given[name] if name in given else feeds[name] for name in self._read]
        with self._entered if twin is None else twin.entered(self.program) as is_there:
            if not is_there:
                return None
            outputs, trace = (self.executable if twin is None else twin).run(arrays, share=room)
        if self._sources is not None:
            outputs = [_find(source, shared, feeds, outputs) for source, shared in self._sources]
        return (outputs if self._finish is None else self._finish(outputs)), trace


def types_key(feeds: Mapping[str, Any]) -> Hashable:
    """What tells inputs of some types from others'. None where one is no array."""
    if any(type(v) is not np.ndarray for v in feeds.values()):
        return None
    return frozenset((name, array.dtype, array.shape) for name, array in feeds.items())


def _find(source: Array | str | int, shared: bool, feeds: Mapping[str, Any], outputs: Sequence[Any]) -> Any:
    value = outputs[source] if isinstance(source, int) else feeds[source] if isinstance(source, str) else source
    return value.copy() if shared and isinstance(value, np.ndarray) else value


def _made(program: Program) -> set[int]:
    """Slots on the host whose arrays a run makes."""
    downloads = {s.host for s in program.steps if isinstance(s, DownloadStep)}
    return downloads.union(*(s.outputs for s in program.steps if isinstance(s, HostStep | ReferenceStep)))
