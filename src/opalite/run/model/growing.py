"""Growing: runs that go on from the last one as that did from the one before, which need no look at the model."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from operator import is_ as _is
from typing import Any

import numpy as np

from ...cl.reserved_tensor import ReservedTensor
from ...importer.walk.segments import Output, Same, Segment
from ...ir.symbols import compile_numbers, is_dim
from ...plan.moving import Moving
from ..execute.exchange import Target
from ..execute.moving_runs import MovingRuns
from ..execute.trace import Ran, RunTrace
from .executables import Compiled
from .imported import record_of
from .onnx_model import OnnxModel, kept_outputs
from .overflow import is_finite

Array = np.ndarray[Any, Any]
_log = logging.getLogger(__name__)
_KEPT = 4  # of one plan
_AHEAD = 4  # times as many positions as there is memory for that a program is made for


def find_moving(
    compiled: Compiled, sizes: Sequence[int], steps: Sequence[int], grown: int, length: int, capacity: int
) -> MovingRuns | None:
    """What runs `compiled` at sizes that go on from `sizes` by `steps`, with which caches of `length` grow by `grown`;
    None where that takes a program for each.

    capacity: number of the size that says for how many positions there is memory. Where it may change as well, the
    program is for _AHEAD times as much: one for more positions later is then no other.
    """
    for found in compiled.moving:
        if found.moving.at(sizes) is not None:
            return found
    if compiled.template is None:
        return None
    for ahead in (_AHEAD, 1):
        held = ahead * sizes[capacity]
        further = (held - 1 - length) // grown
        if further < 1:
            continue
        largest = [n + further * step for n, step in zip(sizes, steps, strict=True)]
        largest[capacity] = held
        moves = {i for i, step in enumerate(steps) if step} | ({capacity} if ahead > 1 else set())
        try:
            made = MovingRuns(compiled.executable, Moving(compiled.template, largest, moves))
        except ValueError as e:
            _log.info("a new length is a new program: %s", e)
            continue
        compiled.moving[:] = [made, *compiled.moving[: _KEPT - 1]]
        return made
    return None


class Growing:
    """Runs of one segment alone by MovingRuns: `serves` says whether feeds are like those before, `run` runs them."""

    def __init__(
        self,
        model: OnnxModel,
        segment: Segment,
        compiled: Compiled,
        runs: MovingRuns,
        feeds: Mapping[str, Array],
        sizes: Sequence[int],
        fixed: Mapping[str, Array],
    ) -> None:
        """feeds, sizes: of the last run, the caches left out. fixed: of those, what contents the segment is for."""
        self._fixed = [(n, array.dtype, array.shape, array.tobytes()) for n, array in fixed.items()]
        self._model, self._segment, self._compiled, self._runs = model, segment, compiled, runs
        arrival = segment.arrival
        assert arrival is not None
        self._last = list(sizes)
        self._inputs = [
            (n, feeds[n].dtype, feeds[n].ndim, list(_numbered(axes)), _fixed(feeds[n].shape, axes))
            for n, axes in arrival.shapes.items()
            if n in feeds
        ]
        self._caches = {n: arrival.shapes[n] for n in arrival.reserved}
        self._capacity = arrival.capacity
        self._known: list[ReservedTensor] = []  # caches that fit
        graph = segment.graph
        inputs, outputs = ({pair[i] for pair in graph.reserved} for i in (0, 1))
        self._read = [n for i, n in enumerate(segment.inputs) if i not in inputs]
        ports = zip(runs.moving.program.reserved, graph.reserved, strict=True)
        self._memory = [(port.slot, segment.inputs[i]) for port, (i, _) in ports]
        self._stored = {
            segment.inputs[i]: port.dtype.np
            for port, (i, _) in zip(runs.moving.program.reserved, graph.reserved, strict=True)
        }
        made = [o for o in range(len(graph.outputs)) if o not in outputs]
        self._places = places = {o: k for k, o in enumerate(made)}
        exports = {n: segment.exports.get(n, Same(n)) for n in model.imported.importer.outputs}
        self._outputs = [places.get(e.index, -1) if isinstance(e, Output) else e for e in exports.values()]
        self._sizes: tuple[int, ...] = ()
        self._given = None if segment.given is None else record_of(segment.given)
        texts = [d.text if is_dim(d) else str(d) for d in segment.lengths.values()]
        self._lengths = compile_numbers(len(sizes), (), texts)

    def serves(self, feeds: Mapping[str, Any], caches: Mapping[str, ReservedTensor]) -> bool:
        """Whether nothing but sizes has changed, and those as they may; to be asked before each `run`."""
        if len(feeds) != len(self._inputs) + len(self._fixed) or not self._model.executables.has(
            self._segment, self._compiled
        ):
            return False
        for name, dtype, shape, contents in self._fixed:
            value = feeds.get(name)
            if type(value) is not np.ndarray or (value.dtype, value.shape) != (dtype, shape):
                return False
            if value.tobytes() != contents:
                return False
        sizes: list[Any] = [None] * len(self._last)
        for name, dtype, rank, numbered, fixed in self._inputs:
            value = feeds.get(name)
            if type(value) is not np.ndarray or value.dtype != dtype or value.ndim != rank:
                return False
            shape = value.shape
            for axis, number in numbered:
                if sizes[number] is None:
                    sizes[number] = shape[axis]
                elif sizes[number] != shape[axis]:
                    return False
            if any(shape[axis] != size for axis, size in fixed):
                return False
        if not self._fit(caches, sizes):
            return False
        self._sizes = tuple(sizes)
        return None not in sizes

    def _fit(self, caches: Mapping[str, ReservedTensor], sizes: list[Any]) -> bool:
        """Whether the caches are what the segment takes; their sizes are added."""
        values = list(caches.values())
        first = values[0]
        if any(c.length != first.length or c.capacity != first.capacity for c in values):
            return False
        same = len(values) == len(self._known) and all(map(_is, values, self._known))
        for name, cache in (next(iter(caches.items())),) if same else caches.items():
            axes = self._caches.get(name)
            if axes is None or cache.stored != self._stored[name]:
                return False
            for axis, number in _numbered(axes):
                size = cache.shape[axis]
                if sizes[number] is None:
                    sizes[number] = size
                elif sizes[number] != size:
                    return False
        sizes[self._capacity] = first.capacity
        self._known = values
        return True

    def run(
        self, feeds: Mapping[str, Any], caches: Mapping[str, ReservedTensor], targets: Mapping[str, Target]
    ) -> tuple[list[Any], RunTrace] | None:
        """The model's outputs in order, None for caches, which have grown, and what the run did; by whoever has the
        session's turn. None where this is no such run after all. targets: outputs that should stay on the device.
        """
        sizes, executable = self._sizes, self._compiled.executable
        values = self._runs.moving.at(sizes)
        if values is None:
            return None
        given = {} if self._given is None else self._given.at(sizes)
        arrays = [given[n] if n in given else feeds[n] for n in self._read]
        wanted = kept_outputs(self._segment, targets) if targets else {}
        kept = {self._places[o]: target for o, target in wanted.items() if o in self._places}
        with executable.lock:
            if executable.is_released:
                return None
            executable.lie_in({slot: caches[n].tensor.buffer for slot, n in self._memory})
            found, trace = self._runs.run(values, arrays, kept)
        if self._compiled.may_overflow and not is_finite(found):
            return None  # lengths are as before, and what it appended is written again
        trace.ran = Ran()
        trace.ran.add(executable)
        trace.ran.note(*self._compiled.notes, *self._compiled.lasting)
        for cache, length in zip(self._segment.lengths, self._lengths(*sizes) or (), strict=True):
            caches[cache].length = length
        return [self._output(o, found, feeds, given) for o in self._outputs], trace

    @staticmethod
    def _output(source: Any, found: Sequence[Any], feeds: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
        if isinstance(source, int):
            return None if source < 0 else found[source]
        if isinstance(source, Same):
            value = given.get(source.name, feeds.get(source.name))
            is_constant = value.base is None and not value.flags.writeable
            return value if is_constant else value.copy()
        return source.copy()


def _numbered(axes: Sequence[int | None]) -> Iterator[tuple[int, int]]:
    return ((i, k) for i, k in enumerate(axes) if k is not None)


def _fixed(shape: Sequence[int], axes: Sequence[int | None]) -> list[tuple[int, int]]:
    return [(i, d) for i, (d, k) in enumerate(zip(shape, axes, strict=True)) if k is None]
