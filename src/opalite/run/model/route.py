"""Route: cached dispatch of one executable for inputs of known types, which skips the model."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...cl.memory.device_tensor import DeviceTensor
from ...lazy_dataclass import dataclass
from ...plan.program import DownloadStep, HostStep, Program, ReferenceStep
from ..execute.executable import Executable
from ..execute.memory.io_transfer import Target
from ..execute.run_trace import RunRecord, RunTrace
from ..execute.strategies.host_fast_path import HostFastPath
from ..execute.strategies.time_slicing import DeviceShare
from .model_run import is_finite
from .run_request import targets_by_number

Array = np.ndarray[Any, Any]


Contents = frozenset[tuple[str, bytes]]
"""Contents of inputs by name."""
NO_CONTENTS: Contents = frozenset()

MOST_COMPARED = 4096
"""Bytes of an input whose contents a route may depend on: they are compared in each run."""

Source = int | str | Array
"""An output of the model: a number of the program's outputs, the name of an input, or a constant."""


@dataclass(frozen=True)
class WholeProgram:
    """A whole run as one program.

    inputs: names of the program's inputs, which are the model's own and the given ones. outputs: names and sources.
    given: arrays that follow from sizes and from contents of inputs. finish: turns these outputs into the model's on
    the host; None if they are the same.
    """

    inputs: Sequence[str]
    outputs: Sequence[tuple[str, Source]]
    given: Mapping[str, Array]
    finish: Callable[[list[Any]], list[Any]] | None = None


class Route:
    """Runs of one executable for inputs by name. The caller holds the run lock, or leases a replica.

    executable: None for several. program: the executable's program for these inputs. types: names, dtypes and shapes
    of these. key: their types (`types_key`), and contents of some of them. is_current: whether such runs should still
    go through the executable. whole: the strategy that is all of such a run, once there is one.
    """

    whole: HostFastPath | None = None

    def __init__(
        self,
        executable: Executable,
        program: Program,
        whole: WholeProgram,
        feeds: Mapping[str, Any],
        contents: Contents = NO_CONTENTS,
        *,
        may_overflow: bool = False,
    ) -> None:
        """program: the executable's program for the sizes of `feeds`, the inputs of the last run.

        may_overflow: outputs on the host are checked, as by the model; after infinities the model runs again.
        """
        self.executable: Executable | None = executable
        self.program = program
        self.key = types_key(feeds), contents
        self.is_current = True
        self._contents, self._may_overflow = contents, may_overflow
        self._entered = executable.entered(program)
        self.types = [(name, array.dtype, array.shape) for name, array in feeds.items()]
        self._texts = [name for name, array in feeds.items() if array.dtype.kind == "O"]
        read = list(whole.inputs)
        self._read = None if read == list(feeds) else read  # None: all inputs, in order
        self._given = whole.given
        self._finish = whole.finish
        self._sources = self._find_sources(whole)
        self._outputs = [(name, source) for name, source in whole.outputs if isinstance(source, int)]
        self._notes: list[str] = []
        self._items: list[Any] = []
        is_own = self._sources is None and self._read is None and self._finish is None
        self._may_be_whole = is_own and not (contents or may_overflow or self._texts)

    def record(self, run_record: RunRecord) -> None:
        """Remember what a run by the model says of itself, which holds for runs by this route too."""
        self._notes, self._items = list(run_record.notes), list(run_record.items)

    @property
    def looked_at(self) -> frozenset[str]:
        """Names of the inputs whose contents it depends on."""
        return frozenset(name for name, _ in self._contents)

    @property
    def run_record(self) -> RunRecord:
        """The record of a run by this route."""
        found = RunRecord()
        found.items, found.notes = list(self._items), list(self._notes)
        for executable, program in self._executed():
            found.executables.append(executable)
            found.programs.append(program)
        return found

    def _executed(self) -> Sequence[tuple[Executable, Program]]:
        """The executables of the last run with their programs."""
        return [] if self.executable is None else [(self.executable, self.program)]

    def _find_sources(self, whole: WholeProgram) -> list[tuple[Source, bool]] | None:
        """(source, is shared) of each output; None for the executable's own outputs. A shared one is copied."""
        made = _made(self.program)
        found: list[tuple[Source, bool]] = []
        seen: set[int] = set()
        for _, source in whole.outputs:
            shared = True
            if isinstance(source, int):
                host = self.program.outputs[source].host
                shared = host not in made or host in seen
                seen.add(host)
            found.append((source, shared))
        own = [(number, False) for number in range(len(self.program.outputs))]
        is_own = all(isinstance(source, int) for source, _ in found) and found == own
        return None if is_own else found

    def run(
        self,
        feeds: Mapping[str, Any],
        targets: Mapping[str, Target] | None = None,
        replica: Executable | None = None,
        share: DeviceShare | None = None,
        check: Callable[[], None] | None = None,
    ) -> tuple[list[Any], RunTrace] | None:
        """The model's outputs in order and the trace; None if the feeds are of other types.

        targets: outputs by name that should stay on the device. replica: runs in place of the executable. share: of the
        device, for a replica. check: called between segments.
        """
        if len(feeds) != len(self.types):
            return None
        arrays = []
        is_moved = bool(targets)
        for name, dtype, shape in self.types:
            array = feeds.get(name)
            if type(array) is not np.ndarray:
                if type(array) is not DeviceTensor:
                    return None
                is_moved = True
            if (array.dtype is not dtype and array.dtype != dtype) or array.shape != shape:
                return None
            arrays.append(array)
        if is_moved and self._finish is not None:
            return None  # the host computes with arrays
        for name, raw in self._contents:
            if type(feeds[name]) is not np.ndarray or feeds[name].tobytes() != raw:
                return None
        for name in self._texts:
            if not all(type(v) is str for v in feeds[name].flat):
                return None
        if self._read is not None:
            given = self._given
            arrays = [given[name] if name in given else feeds[name] for name in self._read]
        executable = replica or self.executable
        assert executable is not None
        kept = targets_by_number(self._outputs, targets) if targets else None
        with self._entered if replica is None else replica.entered(self.program) as is_there:
            if not is_there:
                return None
            outputs, trace = executable.run(arrays, kept, share=share)
        if self._may_be_whole and replica is None:
            steady = executable.current.selector.steady
            self.whole = steady if isinstance(steady, HostFastPath) and steady.is_whole else None
        if self._may_overflow and not is_finite(outputs):
            self.is_current = False  # the model finds out whether the infinities are its own
            return None
        if self._sources is not None:
            outputs = [_find(source, shared, feeds, outputs) for source, shared in self._sources]
        return (outputs if self._finish is None else self._finish(outputs)), trace


def types_key(feeds: Mapping[str, Any]) -> Hashable:
    """Names, dtypes and shapes of inputs; None where one is neither an array nor a DeviceTensor."""
    if not all(type(v) is np.ndarray or type(v) is DeviceTensor for v in feeds.values()):
        return None
    return frozenset((name, array.dtype, array.shape) for name, array in feeds.items())


def contents_of(feeds: Mapping[str, Any], names: Iterable[str]) -> Contents | None:
    """Contents of those inputs; None where one is on the device, or too large to compare it in each run."""
    arrays = [(name, feeds.get(name)) for name in names]
    if any(type(a) is not np.ndarray or a.dtype.hasobject or a.nbytes > MOST_COMPARED for _, a in arrays):
        return None
    return frozenset((name, a.tobytes()) for name, a in arrays if a is not None)


def _find(source: Source, shared: bool, feeds: Mapping[str, Any], outputs: Sequence[Any]) -> Any:
    value = outputs[source] if isinstance(source, int) else feeds[source] if isinstance(source, str) else source
    return value.copy() if shared and isinstance(value, np.ndarray) else value


def _made(program: Program) -> set[int]:
    """Slots on the host whose arrays a run makes."""
    downloads = {s.host for s in program.steps if isinstance(s, DownloadStep)}
    return downloads.union(*(s.outputs for s in program.steps if isinstance(s, HostStep | ReferenceStep)))
