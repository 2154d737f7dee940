"""DecodeFastPath: runs that go on from the last one as that did from the one before, which need no look at the
model."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ....cl.memory.growable_device_tensor import GrowableDeviceTensor
from ....ir.symbols import compile_numbers
from ....plan.kv_cache_spec import KVCacheSpec
from ....plan.template.dynamic_parameters import DynamicParameters
from ...execute.dynamic_shape_runs import DynamicShapeRuns
from ...execute.memory.io_transfer import Target
from ...execute.run_trace import RunRecord, RunTrace
from ...execute.strategies.inflight_runs import InflightRuns
from ..executable_cache import Compiled
from ..fp16_overflow_fallback import is_finite

if TYPE_CHECKING:
    from .kv_cache_runs import Way

Array = np.ndarray[Any, Any]
_log = logging.getLogger(__name__)
_KEPT = 4  # of one plan
_AHEAD = 4  # times as many positions as there is memory for that a program is made for


def find_dynamic_parameters(
    compiled: Compiled, sizes: Sequence[int], steps: Sequence[int], grown: int, length: int, capacity: int
) -> DynamicShapeRuns | None:
    """What runs `compiled` at sizes that go on from `sizes` by `steps`, with which caches of `length` grow by `grown`;
    None where that takes a program for each.

    capacity: number of the size that says for how many positions there is memory. Where it may change as well, the
    program is for _AHEAD times as much: one for more positions later is then no other.
    """
    for found in compiled.dynamic:
        if found.dynamic.at(sizes) is not None:
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
            made = DynamicShapeRuns(compiled.executable, DynamicParameters(compiled.template, largest, moves))
        except ValueError as e:
            _log.info("a new length is a new program: %s", e)
            continue
        compiled.dynamic[:] = [made, *compiled.dynamic[: _KEPT - 1]]
        return made
    return None


class DecodeFastPath:
    """Runs of one program alone by MovingRuns: `serves` says whether feeds are like those before, `run` runs them."""

    def __init__(self, way: Way, runs: DynamicShapeRuns, sizes: Sequence[int]) -> None:
        """way: of the last run, which had these sizes."""
        record = self._record = way.record
        self._way, self._compiled, self._runs = way, way.compiled, runs
        self._last = list(sizes)
        known = [(n, a.dtype, a.shape, np.array(a.values, a.dtype).tobytes()) for n, a in record.contents.items()]
        self._fixed = [*known, *((n, *told) for n, told in record.fixed.items())]
        self._inputs = [
            (n, np.dtype(a.dtype), len(a.shape), list(_numbered(a.numbers)), _fixed(a.shape, a.numbers))
            for n, a in record.tensors.items()
            if n not in record.caches
        ]
        self._caches = {n: list(_numbered(record.tensors[n].numbers)) for n in record.caches}
        self._capacity = record.capacity
        texts = dict.fromkeys(record.lengths.values())
        self._lengths = compile_numbers(record.open_sizes, (), list(texts))
        self._names = [[n for n, own in record.lengths.items() if own == text] for text in texts]  # by length
        self._known: Mapping[str, GrowableDeviceTensor] = {}  # caches that fit
        self._held: list[tuple[GrowableDeviceTensor, Any]] = []  # of these, with the tensor that each was then
        self._lists: list[list[GrowableDeviceTensor]] = []  # of these, by length
        self._moves = -1  # of the executable, when these were where its program lies; -1 if they never were
        inputs, outputs = ({pair[i] for pair in record.reserved} for i in (0, 1))
        self._read = [n for i, n in enumerate(record.inputs) if i not in inputs]
        ports = list(zip(runs.dynamic.program.reserved, record.reserved, strict=True))
        self._memory = [(port.slot, record.inputs[i]) for port, (i, _) in ports]
        self._stored = {record.inputs[i]: port.dtype.np for port, (i, _) in ports}
        made = [o for o in range(len(runs.dynamic.program.outputs) + len(outputs)) if o not in outputs]
        self._places = {o: k for k, o in enumerate(made)}
        sources = list(enumerate(record.outputs.values()))
        self._computed = [(i, self._places[s]) for i, s in sources if isinstance(s, int) and s in self._places]
        self._others = [(i, s) for i, s in sources if not isinstance(s, int)]
        self._sizes: tuple[int, ...] = ()
        self._unread: tuple[Collection[str], list[int]] | None = None  # outputs that nobody reads, and their numbers

    def twin(self) -> DecodeFastPath:
        """The same for another state, perhaps another thread's. What is noted of runs is only ever assigned anew."""
        other = copy(self)
        other._known, other._held, other._lists = {}, [], []  # so that it holds nothing of this one's memory
        return other

    def serves(self, feeds: Mapping[str, Any], caches: Mapping[str, GrowableDeviceTensor]) -> bool:
        """Whether nothing but sizes has changed, and those as they may; to be asked before each `run`."""
        way = self._way
        if len(feeds) != len(self._inputs) + len(self._fixed) or not way.executables.has(way.key, way.compiled):
            return False
        for name, dtype, shape, contents in self._fixed:
            value = feeds.get(name)
            if type(value) is not np.ndarray or (value.dtype.name, value.shape) != (dtype, shape):
                return False
            if value.tobytes() != contents:
                return False
        sizes: list[Any] = [None] * len(self._last)
        for name, kind, rank, numbered, fixed in self._inputs:
            value = feeds.get(name)
            if type(value) is not np.ndarray or value.dtype != kind or value.ndim != rank:
                return False
            shape = value.shape
            for axis, number in numbered:
                if sizes[number] is None:
                    sizes[number] = shape[axis]
                elif sizes[number] != shape[axis]:
                    return False
            for axis, size in fixed:
                if shape[axis] != size:
                    return False
        if not (self._fit_still(caches, sizes) or self._fit(caches, sizes)):
            return False
        self._sizes = tuple(sizes)
        return None not in sizes

    def _look_ahead(self, sizes: Sequence[int]) -> None:
        """Have at hand what follows from the sizes of the run that goes on from `sizes` as those from the last."""
        following = tuple(2 * now - before for now, before in zip(sizes, self._last, strict=True))
        self._last = list(sizes)
        if self._way.given is not None:
            with suppress(Exception):  # it may not exist; who runs it is told then
                self._way.given.at(following)

    def _fit_still(self, caches: Mapping[str, GrowableDeviceTensor], sizes: list[Any]) -> bool:
        """As `_fit`, for the caches that fitted last. Of one, length and memory alone may be others since: it is cut by
        its state, and stored otherwise by runs of other programs."""
        if caches is not self._known:
            return False
        held = self._held
        length = held[0][0].length
        for cache, tensor in held:
            if cache.length != length or cache.tensor is not tensor:
                return False
        name, cache = next(iter(caches.items()))
        return self._add_sizes(name, cache, sizes)

    def _fit(self, caches: Mapping[str, GrowableDeviceTensor], sizes: list[Any]) -> bool:
        """Whether the caches are what the segment takes; their sizes are added."""
        if len(caches) != len(self._caches):
            return False
        values = list(caches.values())
        first = values[0]
        if any(c.length != first.length or c.capacity != first.capacity for c in values):
            return False
        for name, cache in caches.items():
            if name not in self._caches or cache.stored != self._stored[name]:
                return False
            if not self._add_sizes(name, cache, sizes):
                return False
        self._known, self._held = caches, [(c, c.tensor) for c in values]
        self._lists = [[caches[n] for n in names] for names in self._names]
        self._moves = -1
        return True

    def _add_sizes(self, name: str, cache: GrowableDeviceTensor, sizes: list[Any]) -> bool:
        """Whether the sizes of a cache are those of the run, which get those that are not there yet."""
        shape = cache.shape
        for axis, number in self._caches[name]:
            size = shape[axis]
            if sizes[number] is None:
                sizes[number] = size
            elif sizes[number] != size:
                return False
        sizes[self._capacity] = cache.capacity
        return True

    def run(
        self,
        feeds: Mapping[str, Any],
        caches: Mapping[str, GrowableDeviceTensor],
        targets: Mapping[str, Target],
        unread: Collection[str] = (),
    ) -> tuple[list[Any], RunTrace] | None:
        """The model's outputs in order, None for caches, which have grown, and what the run did; by whoever has the
        session's turn. None where this is no such run after all. targets: outputs that should stay on the device.
        unread: those that nobody reads.
        """
        sizes, executable = self._sizes, self._compiled.executable
        values = self._runs.dynamic.at(sizes)
        if values is None:
            return None
        given = self._given(sizes)
        arrays = [given[n] if n in given else feeds[n] for n in self._read]
        wanted = kept_numbers(self._record, targets) if targets else {}
        kept = {self._places[o]: target for o, target in wanted.items() if o in self._places}
        with executable.entered() as is_there:
            if not is_there:
                return None
            if executable.rebind_count != self._moves:  # another state has run, or these caches never did
                executable.rebind_state_buffers({slot: caches[n].tensor.buffer for slot, n in self._memory})
                self._moves = executable.rebind_count
            look_ahead = partial(self._look_ahead, sizes)
            found, trace = self._runs.run(values, arrays, kept, look_ahead, self._lent(unread))
        if self._compiled.may_overflow and not is_finite(found):
            return None  # lengths are as before, and what it appended is written again
        self._tell(trace)
        self._grow(self._lengths(*sizes) or ())
        return self._outputs(found, feeds, given), trace

    def run_ahead(
        self,
        feeds: Sequence[Mapping[str, Any]],
        caches: Mapping[str, GrowableDeviceTensor],
        links: Mapping[str, str],
        unread: Collection[str],
    ) -> tuple[list[list[Any]], RunTrace] | None:
        """As `run`, for the first of several runs on `feeds`, of which none is waited for before the next is on the
        queue: as many as go so; None where none does, and caches are as before.

        links: by input, the output of the run before that it is, whatever is fed. May be asked without `serves`.
        """
        executable = self._compiled.executable
        linked = self._link(links)
        if linked is None or not self.serves(feeds[0], caches):
            return None
        before = [c.length for c in caches.values()]
        with executable.entered() as is_there:
            if not is_there or executable.rebind_count != self._moves:
                return None
            ahead = self._runs.inflight(linked, self._lent(unread))
            if ahead is None:
                return None
            found = None
            try:
                given = self._add(ahead, feeds, caches)
                found = ahead.finish() if given else None
                if found is not None and self._compiled.may_overflow and not all(map(is_finite, found[0])):
                    found = None
            except BaseException:
                ahead.drop()
                raise
            finally:
                if found is None:  # what was appended is written again
                    for cache, length in zip(caches.values(), before, strict=True):
                        cache.length = length
        if found is None:
            return None
        self._tell(found[1])
        each = zip(found[0], feeds, given, strict=False)
        return [self._outputs(outputs, fed, own) for outputs, fed, own in each], found[1]

    def _add(
        self, ahead: InflightRuns, feeds: Sequence[Mapping[str, Any]], caches: Mapping[str, GrowableDeviceTensor]
    ) -> list[Mapping[str, Any]]:
        """Put the runs on the queue that go, and have caches grow by them; what sizes decide of each."""
        made: list[Mapping[str, Any]] = []
        for number, fed in enumerate(feeds):
            if number and not self.serves(fed, caches):
                break
            sizes = self._sizes
            values, lengths = self._runs.dynamic.at(sizes), self._lengths(*sizes)
            if values is None or lengths is None:
                break
            if any(n >= c.capacity for n, grown in zip(lengths, self._lists, strict=True) for c in grown[:1]):
                break
            given = self._given(sizes)
            if not ahead.add(values, [given[n] if n in given else fed[n] for n in self._read]):
                break
            made.append(given)
            self._grow(lengths)
            self._look_ahead(sizes)
        return made

    def _link(self, links: Mapping[str, str]) -> dict[int, int] | None:
        """The program's outputs by its inputs, by number; None where it reads or computes one not by itself."""
        found = {}
        for name, output in links.items():
            source = self._record.outputs.get(output)
            if name not in self._read or not isinstance(source, int) or source not in self._places:
                return None
            found[self._read.index(name)] = self._places[source]
        return found

    def _lent(self, unread: Collection[str]) -> list[int]:
        """The program's outputs, by number, that nobody reads."""
        if not unread:
            return []
        if self._unread is None or self._unread[0] != unread:
            sources: dict[int, bool] = {}  # whether somebody reads it
            for name, source in self._record.outputs.items():
                if isinstance(source, int) and source in self._places:
                    sources[source] = sources.get(source, False) or name not in unread
            self._unread = unread, [self._places[s] for s, is_read in sources.items() if not is_read]
        return self._unread[1]

    def _given(self, sizes: tuple[int, ...]) -> Mapping[str, Any]:
        return {} if self._way.given is None else self._way.given.at(sizes)

    def _grow(self, lengths: Sequence[int]) -> None:
        for grown, length in zip(self._lists, lengths, strict=True):
            for cache in grown:
                cache.length = length

    def _tell(self, trace: RunTrace) -> None:
        trace.run_record = RunRecord()
        trace.run_record.add(self._compiled.executable)
        trace.run_record.note(*self._compiled.notes, *self._compiled.lasting)

    def _outputs(self, found: Sequence[Any], feeds: Mapping[str, Any], given: Mapping[str, Any]) -> list[Any]:
        """The model's, of those that the program has."""
        outputs: list[Any] = [None] * len(self._record.outputs)
        for i, place in self._computed:
            outputs[i] = found[place]
        for i, source in self._others:
            outputs[i] = output_of(source, {}, feeds, given)
        return outputs


def kept_numbers(record: KVCacheSpec, targets: Mapping[str, Target]) -> dict[int, Target]:
    """Targets by number of the graph's output, for those that nothing else in the model asks for."""
    found: dict[int, Target] = {}
    shared: set[int] = set()
    for name, source in record.outputs.items():
        if isinstance(source, int):
            if name in targets:
                found.setdefault(source, targets[name])
            else:
                shared.add(source)
    return {number: target for number, target in found.items() if number not in shared}


def output_of(
    source: int | str | Array, found: Mapping[int, Any], feeds: Mapping[str, Any], given: Mapping[str, Any]
) -> Any:
    """An output of the model, by what a record says that it is; None for a cache. found: by number of the graph's."""
    if isinstance(source, int):
        return found.get(source)
    if isinstance(source, str):
        value = given[source] if source in given else feeds[source]
        is_constant = value.base is None and not value.flags.writeable
        return value if is_constant else value.copy()
    return source.copy()


def _numbered(axes: Sequence[int | None]) -> Iterator[tuple[int, int]]:
    return ((i, k) for i, k in enumerate(axes) if k is not None)


def _fixed(shape: Sequence[int], axes: Sequence[int | None]) -> list[tuple[int, int]]:
    return [(i, d) for i, (d, k) in enumerate(zip(shape, axes, strict=True)) if k is None]
