"""Ahead: runs of one program put on the queue behind each other, each taking outputs of the one before it there.

The device goes on from run to run while the host prepares the next ones, and reads what all have computed at the end.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import numpy as np

from ...cl.tensor import DeviceTensor
from ...errors import OpaliteError
from ...plan.moving import Values
from ...plan.program import Port
from .number_table import AHEAD
from .queue import Queue
from .sized import Sized
from .trace import RunTrace

_SMALL = 64 << 10  # bytes of an output that are read to memory which does not move, without which the host may wait
_ALIGNED = 64


class Way(Protocol):
    """What runs go through."""

    @property
    def queue(self) -> Queue:
        """Whose phases they are."""

    def begin(self, values: Values, ahead: int) -> bool:
        """Have the next run use `values`, behind so many others on the queue; whether it can."""


class Ahead:
    """Up to AHEAD runs that nobody waits for. Whoever adds some calls `finish` or `drop`, and has the executable's lock
    until then."""

    def __init__(
        self,
        sized: Sized,
        way: Way,
        relayed: Mapping[int, int],
        kept: Mapping[int, DeviceTensor],
        write_tables: Callable[[Values], list[Any]],
        outputs: Pinned,
    ) -> None:
        """relayed: by slot on the host of an input, that of the output which it is from the second run on. kept:
        outputs by slot on the host that stay where they are. write_tables: writes constants that depend on sizes."""
        self._sized, self._way, self._queue = sized, way, way.queue
        self._relayed, self._kept, self._write_tables, self._outputs = relayed, kept, write_tables, outputs
        self._runs: list[list[Any]] = []
        self._pending: list[Any] = []
        self._began = time.perf_counter()
        exchange = sized.prepared.exchange
        exchange.bytes_up = exchange.bytes_down = 0
        idle = sized.prepared.rt.take_residence(None)
        if idle is not None:
            idle.leave()

    def add(self, values: Values, feeds: Sequence[Any]) -> bool:
        """Put a run on the queue; whether there was room for it. values: of its sizes."""
        count = len(self._runs)
        if count == AHEAD or not self._way.begin(values, count):
            return False
        hosts = self._sized.filled(feeds)
        relayed = self._relayed if count else {}
        self._runs.append(hosts)
        self._pending += self._write_tables(values)
        self._pending += self._queue.enqueue(hosts, self._kept, relayed, self._outputs.arrays(count))
        return True

    def finish(self) -> tuple[list[list[Any]], RunTrace] | None:
        """Outputs of each run, and what all of them did; None where what they computed is not to be believed."""
        enqueued = time.perf_counter()
        believed = self._queue.finish()
        self._pending.clear()
        if not believed:
            return None
        prepared, pinned = self._sized.prepared, self._outputs
        found = [[pinned.own(hosts[n]) for n in self._sized.outputs] for hosts in self._runs]
        exchange = prepared.exchange
        return found, RunTrace(
            upload_s=enqueued - self._began,
            compute_s=time.perf_counter() - enqueued,
            strategy=f"{self._queue.name} ahead",
            launches=prepared.launch_count * len(self._runs),
            bytes_up=exchange.bytes_up,
            bytes_down=exchange.bytes_down,
            waits=1,
            runs=len(self._runs),
        )

    def drop(self) -> None:
        """Let them end, unread."""
        with suppress(OpaliteError):
            self._queue.finish()
        self._pending.clear()


def _nbytes(port: Port) -> int:
    return math.prod(port.shape) * int(port.dtype.np.itemsize)


class Pinned:
    """Memory for the small outputs of AHEAD runs, which the device writes while the host does not wait."""

    def __init__(self, pinned: Callable[[int], Any], outputs: Iterable[Port]) -> None:
        """pinned: gives so many bytes of it. outputs: those that have one shape in all runs."""
        self._ports = {p.host: p for p in outputs if 0 < _nbytes(p) <= _SMALL}
        sizes = [-(-_nbytes(p) // _ALIGNED) * _ALIGNED for p in self._ports.values()]
        self._starts = dict(zip(self._ports, np.cumsum([0, *sizes]).tolist(), strict=False))
        self._bytes = pinned(AHEAD * sum(sizes)).reshape(AHEAD, sum(sizes))

    def arrays(self, run: int) -> dict[int, Any]:
        """For the outputs of a run, by slot on the host."""
        row, starts = self._bytes[run], self._starts
        return {
            n: row[starts[n] : starts[n] + _nbytes(p)].view(p.dtype.np).reshape(p.shape) for n, p in self._ports.items()
        }

    def own(self, output: Any) -> Any:
        """The output in memory of its own."""
        is_here = isinstance(output, np.ndarray) and np.may_share_memory(output, self._bytes)
        return output.copy() if is_here else output
