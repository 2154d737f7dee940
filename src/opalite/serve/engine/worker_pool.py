"""WorkerPool: the worker processes of a version; those that end are replaced until it is dismissed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from ..wire.serve_errors import Internal, NotReady, ServeError
from .device_list import Device
from .server_observer import ServerObservers, WorkerEvent
from .worker_channel import Message
from .worker_process import WorkerProcess

_SHORT_LIFE_S, _LONGEST_PAUSE_S = 2.0, 30.0
_GIVEN_UP = 4
"""Starts that fail one after the other until nobody is expected; it is tried again and again all the same."""


class Place(NamedTuple):
    """Where a worker works. share: which part of the cores is its own, and of how many; None for all cores."""

    device: str
    share: tuple[int, int] | None = None


def places_on(devices: Sequence[Device], instances: int) -> list[Place]:
    """As many places on each device; those on one that computes with the machine's cores divide them."""
    return [
        Place(d.id, (number, instances) if d.on_host and instances > 1 else None)
        for d in devices
        for number in range(instances)
    ]


class WorkerPoolOwner(Protocol):
    """Who a crew works for: a version of a model."""

    name: str
    version: str

    def opening(self, place: Place, quickly: bool) -> Message:
        """What a worker is told to open; quickly: it replaces one that was lost."""

    def hire(self, worker: WorkerProcess, place: Place, told: Message) -> None:
        """A worker has opened the model, of which it tells. A ServeError sends it away."""

    def despair(self, failure: ServeError) -> None:
        """There is no worker, and none is expected."""


class WorkerPool:
    """`ready` has the workers that take batches, with their devices' ids."""

    def __init__(
        self,
        employer: WorkerPoolOwner,
        places: Sequence[Place],
        timeout_s: float,
        watchers: ServerObservers,
        new_process: Callable[[], WorkerProcess],
    ) -> None:
        """places: one for each worker. timeout_s: for a start."""
        self.ready: dict[WorkerProcess, str] = {}
        self._employer, self._places, self._timeout_s = employer, places, timeout_s
        self._watchers, self._new_process = watchers, new_process
        self._all: dict[WorkerProcess, str] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._failures = 0  # one after the other

    @property
    def is_expected(self) -> bool:
        """Whether there is a worker, or will be as soon as one that was lost is replaced."""
        return bool(self.ready) or self._failures < _GIVEN_UP

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes."""
        return tuple(w.pid for w in self._all)

    def find(self) -> WorkerProcess | None:
        """The worker that has room for a batch and holds the fewest."""
        return min((w for w in self.ready if w.has_room), key=lambda w: len(w.jobs), default=None)

    async def start(self) -> None:
        """Start all workers; returns when each has opened the model or failed. The first's ServeError when none can."""
        firsts: list[asyncio.Future[None]] = []
        for place in self._places:
            first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            firsts.append(first)
            self._keepers.append(asyncio.create_task(self._keep(place, first)))
        found = await asyncio.gather(*firsts, return_exceptions=True)
        failed = [e for e in found if isinstance(e, BaseException)]
        if len(failed) == len(found):
            await self.dismiss()
            raise failed[0]

    async def dismiss(self) -> None:
        """End all workers; what they hold is lost."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        await asyncio.gather(*(w.stop() for w in list(self._all)))
        for worker, device in self._all.items():
            self._tell("stopped", device, worker.pid)

    async def _keep(self, place: Place, first: asyncio.Future[None]) -> None:
        """See to it that there is a worker in one place."""
        device = place.device
        while True:
            try:
                worker = await self._open(place, quickly=first.done())
            except Exception as e:
                failure = e if isinstance(e, ServeError) else Internal(f"a worker cannot be started: {e}")
                self._tell("failed", device, reason=str(failure))
                if not first.done():
                    first.set_exception(failure)
                    return
                self._count(failure)
            else:
                born = time.monotonic()
                if not first.done():
                    first.set_result(None)
                await asyncio.shield(worker.ended)
                self.ready.pop(worker, None)
                self._tell("lost", self._all.pop(worker, device), worker.pid, await worker.describe_end())
                if time.monotonic() - born < _SHORT_LIFE_S:
                    self._count(NotReady("workers end as soon as they start"))
                else:
                    self._failures = 0
            # One that is lost once is replaced at once; who falls again and again waits longer and longer.
            await asyncio.sleep(min(_LONGEST_PAUSE_S, 0.1 * 2**self._failures) if self._failures > 1 else 0)

    async def _open(self, place: Place, quickly: bool) -> WorkerProcess:
        started = time.monotonic()
        worker = self._new_process()
        self._all[worker] = place.device
        self._tell("starting", place.device, worker.pid)
        employer = self._employer
        try:
            opening = employer.opening(place, quickly)
            told = await worker.open(opening, employer.version, self._timeout_s)
            self.ready[worker] = self._all[worker] = told["device"]
            employer.hire(worker, place, told)
        except BaseException:
            self._all.pop(worker, None)
            self.ready.pop(worker, None)
            worker.kill()
            await worker.stop()
            raise
        self._tell("ready", told["device"], worker.pid, seconds=time.monotonic() - started)
        return worker

    def _count(self, failure: ServeError) -> None:
        self._failures += 1
        if not self.is_expected:
            self._employer.despair(failure)

    def _tell(self, kind: Any, device: str, pid: int = 0, reason: str = "", seconds: float = 0.0) -> None:
        event = WorkerEvent(kind, self._employer.name, self._employer.version, device, pid, reason, seconds)
        self._watchers.worker(event)
